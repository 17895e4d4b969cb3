# /// script
# dependencies = ["django==5.2.19", "apig-wsgi==2.20.0"]
# ///
# A project of one file: a model in SQLite, a form, a template; behind apig-wsgi.
import os
import tempfile

import django
from apig_wsgi import make_lambda_handler
from django.conf import settings
from request import request

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.path.join(tempfile.mkdtemp(), "farm.sqlite3"),
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="s",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    TIME_ZONE="Europe/Berlin",
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.template import engines  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils import timezone  # noqa: E402


def index(request):
    text = "Hello, {{ name }}. {{ when|date:'H' }}"
    when = timezone.datetime(2026, 7, 1, 12, tzinfo=timezone.get_fixed_timezone(0))
    return HttpResponse(engines["django"].from_string(text).render({"name": "wörld", "when": when}))


async def users(request):
    name = request.GET["name"]
    await User.objects.filter(username=name).adelete()
    made = await User.objects.acreate_user(name, password="wool")
    return JsonResponse({"count": await User.objects.acount(), "good": made.check_password("wool")})


urlpatterns = [path("", index), path("users", users)]
handler = make_lambda_handler(get_wsgi_application())


def work() -> None:
    import json

    call_command("migrate", verbosity=0)
    answer = handler(request("GET", "/"), None)
    assert answer["statusCode"] == 200 and answer["body"] == "Hello, wörld. 14", answer
    made = handler(request("GET", "/users", query="name=dolly"), None)
    assert json.loads(made["body"]) == {"count": 1, "good": True}, made
    assert handler(request("GET", "/nowhere"), None)["statusCode"] == 404
