# Helpers of the function's own that are called like what a copy of a machine is to have reseeded. Right: [4, 5, 6].
import numpy
import random
import uuid


def handler(event, context):
    if event == "fail":
        raise ValueError("so")
    return [random.roll(), uuid.roll(), numpy.random.roll()]
