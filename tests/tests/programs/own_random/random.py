def seed(value):
    return value


def roll():
    return 4
