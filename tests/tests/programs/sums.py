# What each way of making an instance must manage, so that its other failures mean something.
def handler(event, context):
    return sum(event["numbers"])
