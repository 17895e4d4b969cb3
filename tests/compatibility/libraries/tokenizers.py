# /// script
# dependencies = ["tokenizers==0.23.3"]
# ///
# Trains a tokeniser with threads of Rust, and cuts text by it.
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def work() -> None:
    made = Tokenizer(models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(special_tokens=["[UNK]"], vocab_size=200, show_progress=False)
    made.train_from_iterator(["the sheep on the hill", "wölle of the sheep"] * 200, trainer)
    cut = made.encode("the sheep")
    assert cut.tokens == ["the", "sheep"], cut.tokens
    many = made.encode_batch(["the hill"] * 500)
    assert {tuple(each.tokens) for each in many} == {("the", "hill")}
    again = Tokenizer.from_str(made.to_str())
    assert again.encode("wölle").tokens == ["wölle"] and again.get_vocab_size() <= 200
