# The root logger's first handler gets another format, as functions on AWS Lambda do. Right: [1, "WARNING", "INFO"], and the
# log has "fmt|hello" once.
import logging

root = logging.getLogger()
before = logging.getLevelName(root.level)
root.setLevel(logging.INFO)
root.handlers[0].setFormatter(logging.Formatter("fmt|%(message)s"))


def handler(event, context):
    root.info("hello")
    return [len(root.handlers), before, logging.getLevelName(root.level)]
