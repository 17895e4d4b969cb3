def request(method, path, query="", body=None):
    """An event as an HTTP API of AWS sends it, in its second format."""
    import urllib.parse

    values = {name: ",".join(many) for name, many in urllib.parse.parse_qs(query).items()}
    context = {
        "accountId": "1",
        "apiId": "a",
        "authentication": None,
        "domainName": "farm.example",
        "domainPrefix": "farm",
        "http": {
            "method": method,
            "path": urllib.parse.unquote(path),
            "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1",
            "userAgent": "test",
        },
        "requestId": "r",
        "routeKey": "$default",
        "stage": "$default",
        "time": "01/Jan/2026:00:00:00 +0000",
        "timeEpoch": 1767225600000,
    }
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "farm.example", "content-type": "application/json"},
        "requestContext": context,
        "isBase64Encoded": False,
    }
    if values:
        event["queryStringParameters"] = values
    if body is not None:
        event["body"] = body
    return event
