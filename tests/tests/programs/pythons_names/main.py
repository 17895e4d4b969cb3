# A folder of files that are called like modules of Python's, and a handler that awaits. Right: "fail" raises ValueError("so"),
# else each module is the function's own, but for those that are in every interpreter from its start.
import abc
import ast
import asyncio
import calendar
import codecs
import collections
import copy
import ctypes
import enum
import email
import functools
import inspect
import io
import json
import linecache
import locale
import logging
import numbers
import operator
import pathlib
import queue
import random
import re
import secrets
import select
import signal
import site
import socket
import ssl
import statistics
import string
import struct
import threading
import time
import token
import tokenize
import traceback
import types
import typing
import uuid
import warnings

NAMES = "ast asyncio calendar collections copy ctypes enum email functools inspect json linecache locale logging numbers operator pathlib queue random re secrets select signal socket ssl statistics string struct threading token tokenize traceback types typing uuid warnings"


async def handler(event, context):
    if event == "fail":
        raise ValueError("so")
    return [name for name in NAMES.split() if getattr(globals()[name], "WHOSE", "") != name]
