# /// script
# dependencies = ["python-telegram-bot==22.8"]
# ///
# The echo bot of python-telegram-bot as a web hook; what it sends is kept instead.
import json

from request import request
from telegram import ForceReply, Update
from telegram.ext import Application, CommandHandler, MessageHandler, filters
from telegram.request import BaseRequest

sent = []


class Kept(BaseRequest):
    read_timeout = None

    async def initialize(self):
        pass

    async def shutdown(self):
        pass

    async def do_request(self, url, method, request_data=None, **timeouts):
        told = request_data.parameters if request_data else {}
        if url.endswith("getMe"):
            result = {"id": 1, "is_bot": True, "first_name": "b", "username": "farm_bot"}
        else:
            sent.append(told)
            chat = {"id": told["chat_id"], "type": "private"}
            result = {"message_id": 9, "date": 0, "chat": chat, "text": told["text"]}
        return 200, json.dumps({"ok": True, "result": result}).encode()


async def start(update, context):
    await update.message.reply_html("Hi!", reply_markup=ForceReply(selective=True))


async def echo(update, context):
    await update.message.reply_text(update.message.text)


def build():
    builder = Application.builder().token("1:a").request(Kept()).get_updates_request(Kept())
    application = builder.updater(None).build()
    application.add_handler(CommandHandler("start", start))
    application.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND, echo))
    return application


async def handler(event, context):
    async with build() as application:
        await application.process_update(Update.de_json(json.loads(event["body"]), application.bot))
    return {"statusCode": 200}


async def work() -> None:
    sent.clear()
    for text in ("/start", "wölle"):
        message = {
            "message_id": 1,
            "date": 0,
            "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "is_bot": False, "first_name": "d"},
            "text": text,
            "entities": [{"type": "bot_command", "offset": 0, "length": 6}]
            if text[0] == "/"
            else [],
        }
        body = json.dumps({"update_id": 1, "message": message})
        assert await handler(request("POST", "/", body=body), None) == {"statusCode": 200}
    assert [told["text"] for told in sent] == ["Hi!", "wölle"], sent
