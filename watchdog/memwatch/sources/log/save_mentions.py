"""Finds in a line that a checkpoint is being written, or was: `Saving model to out/3.pt`, `Checkpoint saved`."""

from __future__ import annotations

import re
from typing import NamedTuple

_FILE = "\0"  # stands for a path that looks like a checkpoint's; any other path is left out
_EXTENSION = re.compile(
    r"\.(?:pth?|ckpt|safetensors|np[yz]|pkl|pickle|joblib|h5|hdf5|keras|bin|tar|orbax|msgpack|eqx|gguf|ply"
    r"|params|pdparams|caffemodel|solverstate|ubj|cbm|onnx|bson|jld2|model|gensim|state)\W*$"
)
_HAS_EXTENSION = re.compile(r"\.[a-z]\w{0,5}\W*$")
_IS_CALLED = re.compile(r"ckpt|check_?point|model|weight|epoch|iter|step|best|last|adapter")
_SETTING = re.compile(r"\b\w+=(?:'[^']{0,200}'|[\w.-]{1,60}(?=[,)]))")  # of a configuration: save='out', epochs=50
_PATH = re.compile(
    r"(?<![^\s'\"`(=:])(?:(?:[a-z]:)?[\w.~-]{0,60}[/\\][\w./\\=~+:-]{1,200}|[\w-]{1,80}\.[a-z]\w{1,10}\b(?![.(]))['\"`)]?"
)
_OBJECT = (
    r"check[ -]?points?|ckpts?|models?|net(?:work)?s?|weights?|param(?:eter)?s|variables|states?|adapters?|modules"
    r"|snapshots?|sessions?|assets|gaussians|polic(?:y|ies)|agents?|generators?|population|pipelines?|learner|ensemble"
)
# What is written besides; alone or as in `model config`, `optimizer state`.
_OTHER = (
    r"(?:(?:model|checkpoint|network|optimi[sz]er|scheduler|scaler|parameter|generator)s? )?"
    r"(?:config\w*|tokeni[sz]er|vocab\w*|arg(?:ument)?s|hyper-?param\w*|predictions?|results?|figures?|plots?|images?"
    r"|videos?|pictures?|metrics|logs?|history|features|data(?:set)?|cache|summar\w+|samples|tables?|reports?|statistics"
    rf"|diagram|graph|card|(?:dir(?:ectory)?|folder|path)(?!\s?[:=]\s?(?:\w{{1,8}}:|\W{{1,3}})?{_FILE})|freq\w*|names?"
    r"|array metadata|ind(?:ex|exes|ices)|sizes?)\b"
    r"|(?:optimi[sz]er|scheduler) states?"
)
_NOUN = re.compile(rf"\b(?:(?P<other>{_OTHER})|(?P<object>{_OBJECT}))\b|(?P<file>{_FILE})")
# `indices saved to data.npy`: what was saved is no model, whatever the file is called
_BEST = re.compile(r"\b(?P<object>best)\b(?P<other>(?!))?(?P<file>(?!))?")
_OTHER_IS = re.compile(rf"\b(?:{_OTHER})(?: (?:was|were|is|are|has been|have been|successfully))* $")
_DONE = re.compile(
    r"(?:\b|(?<=[0-9]))(?:saved|written|wrote|stored|dumped|snapshotted"
    r"|(?:finished|done|completed|successfully)(?: \w+)? (?:sav(?:ing|ed?)|writ(?:ing|e|ten))"
    r"|(?<=checkpoint )(?:finished|done|completed))\b"
)
_UNDER_WAY = re.compile(
    r"(?:\b|(?<=[0-9]))(?:saving|writing|dumping|snapshotting"
    r"|(?<!gradient )(?<!activation )checkpointing(?= (?:the|to|model|weights|state|agent)\b)"
    r"|(?:started|starting)\b(?= (?:\w+ ){0,4}save\b))\b"
    r"|(?:^\W{0,40}|[\]:|>,-] {1,4}\[?|\b(?:already|preparing to|info) {1,4})(?P<order>save)\b"
)
# Words of other languages, and the English ones that are read instead.
_TRANSLATIONS = (
    (
        re.compile(
            r"\b(?:сохран[её]н[аоы]?|guardad[oa]s?|salv(?:[oa]s?|at[oaie])|enregistrée?s?|sauvegardée?s?|gespeichert)\b"
            r"|已保存|保存完了|保存しました|保存成功|저장(?:됨|완료|되었| 완료)"
        ),
        " saved ",
    ),
    (
        re.compile(
            r"\b(?:сохран(?:яем|яю|яется|ение)|guardando|salvando|salvataggio|enregistrement|sauvegarde|speichern?)\b"
            r"|保存|저장"
        ),
        " saving ",
    ),
    (
        re.compile(
            r"\b(?:модел[ьи]|веса|чекпоинт\w*|modelos?|modell[oie]?|modèles?|pesos|poids|gewichte)\b"
            r"|模型|权重|检查点|モデル|모델|체크포인트"
        ),
        " model ",
    ),
    (re.compile(r"失败|失敗|실패|ошибка|не удалось|fehlgeschlagen|échec|échoué|falló|falha|fallito"), " failed "),
)
_ALONE = re.compile(r"\W{0,40}saving\W{0,40}")  # all that the line says
_AFTER_ORDER = re.compile(r" (?:to|in|into|at|for|is)\b| ?[@:\0]|\s?\.|\W{0,40}$")  # no setting: `save model freq`
_ENDS = re.compile(r"\b(?:done|finished|completed?)\b")
_NOT_SO = re.compile(
    r"\b(?:not|never|fail\w*|cannot|could|unable|will|would|disabled|every|interval|frequency|if|when)\b"
    r"|\b(?:last|previously|being|previous) saved\b|\bto[ -]be[ -](?:saved|written)\b"
    r"|\b(?:(?:down)?load|resum|restor)\w*\b"
    r"|\b(?:error|skip\w*)\b(?!(?: ratio| rate)?\s{0,3}[=:]?\s{0,3}[-+]?[0-9])"
)
_SET_KEY = re.compile(r"\b\w{0,40}(?:sav|writ|dump)\w{1,60}['\"]? {0,3}[:=] {0,3}(?:true|false|none|null)\b")
# of a setting; but `Saving checkpoint: 10` says which one
_VALUE = re.compile(r" {0,3}[:=] {0,3}(?:true|false|yes|no|none|null|(?P<number>[0-9.]+))\W{0,3}$")
# where they will be
_FOLDER = re.compile(r"\b(?:path|folder|dir(?:ectory)?) {0,3}[:=](?!\[)|\b(?:models to ?:|checkpoints to\b)")
_BEFORE_CHARS, _AFTER_CHARS, _AFTER_UNDER_WAY_CHARS = 120, 200, 80  # of a verb, in which its object is looked for
_VERBS = ("sav", "writ", "wrote", "stored", "dump", "snapshott", "checkpoint ", "checkpointing ")
_FOREIGN_VERBS = ("сохран", "guarda", "salv", "enregistr", "sauvegard", "speicher", "保存", "저장")


class SaveMention(NamedTuple):
    """What a line says of a checkpoint."""

    state: str  # "saved", "writing", or "": another line of this kind, with other numbers, may say so
    position: int  # of the verb, about
    has_object: bool = True  # else it says `Saving...`, of a data set before the training


def find_save(lower: str) -> SaveMention | None:
    """Return what the text, in lower case, says of a checkpoint; None where nothing is written."""
    if any(verb in lower for verb in _FOREIGN_VERBS):
        for words, english in _TRANSLATIONS:
            lower = words.sub(english, lower)
    if not any(verb in lower for verb in _VERBS):
        return None
    text = _PATH.sub(_file_or_nothing, _SETTING.sub("", lower)).replace("saved_model", "model").replace("_", " ")
    done = _DONE.search(text)
    verb = done or _UNDER_WAY.search(text)
    if verb is None:
        return None
    position = min(verb.start(), len(lower) - 1)
    if _ALONE.fullmatch(lower):
        return SaveMention("writing", position, has_object=False)
    noun = _NOUN.search(text, verb.end(), verb.end() + (_AFTER_CHARS if done else _AFTER_UNDER_WAY_CHARS))
    if done and (noun is None or noun["other"]):
        *_, noun = (noun, *_NOUN.finditer(text, max(0, verb.start() - _BEFORE_CHARS), verb.start()))
    if done and noun is None:  # `New best AUC=0.27 -> saved`
        noun = _BEST.search(text, max(0, verb.start() - _BEFORE_CHARS), verb.start())
    is_other = done is not None and _OTHER_IS.search(text, max(0, verb.start() - _BEFORE_CHARS), verb.start())
    if noun is None or noun["other"] or (noun["file"] and is_other):
        return SaveMention("", position)
    state = "saved" if done or _ENDS.search(text, noun.end()) else "writing"
    value = _VALUE.match(text, max(verb.end(), noun.end()))
    is_numbered = done is None and verb["order"] is None and value is not None and value["number"]
    is_setting = (value is not None and not is_numbered) or _SET_KEY.search(lower) is not None
    if done is None:
        follows = noun["file"] or _AFTER_ORDER.match(text, noun.end())
        is_setting |= _FOLDER.search(text) is not None
        is_setting |= verb["order"] is not None and (not follows or text[verb.end() :].lstrip()[:1] in (":", "="))
    return SaveMention("" if is_setting or _NOT_SO.search(text) else state, position)


def _file_or_nothing(path: re.Match[str]) -> str:
    name = path[0]
    if _EXTENSION.search(name):
        return _FILE
    last = " ".join(name.rsplit("/", 2)[-2:])
    is_folder = "/" in name and not _HAS_EXTENSION.search(name)
    return _FILE if is_folder and _IS_CALLED.search(last) else ""
