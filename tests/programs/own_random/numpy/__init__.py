from . import random
