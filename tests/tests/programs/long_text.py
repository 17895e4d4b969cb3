# A reply of 3.3 MB of Chinese text, below the limit of 6 MiB as UTF-8, and above it in ASCII. Right: the text.
def handler(event, context):
    return event["text"] * event["n"]
