"""Random configurations of each family, and what becomes of them here and in transformers.

`there` draws a config.json as people write them (fields left out, null, aliases, rare fields) and loads it; `here`
draws a `Shape` and saves it. Both return an outcome: "equal", "refused: FIELD", "WRONG: ...", "crash: ...", or "not
theirs" where transformers does not run the configuration itself, "not ours" where the shape is none.

`python tests/pretrained/fidelity.py 200` counts outcomes; names of families behind the number choose some.
"""

import json
import logging
import random
import re
import runpy
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

TABLES = runpy.run_path(str(Path(__file__).with_name("fields.py")))
OUT, INERT, FIELDS, SHAPES, WORDS = (TABLES[name] for name in ("OUT", "INERT", "FIELDS", "SHAPES", "WORDS"))
BASES = TABLES["BASES"]
LATENT_MIXERS, DELTA_MIXERS, MAMBA_MIXERS, MAMBA2_MIXERS, CONVOLUTION_MIXERS, KIMI_MIXERS = (
    TABLES[f"{kind}_MIXERS"] for kind in ("LATENT", "DELTA", "MAMBA", "MAMBA2", "CONVOLUTION", "KIMI")
)
BROKEN = ("WRONG", "crash", "refused: no field")
LM, MASKED, BASE, CLASSES, PAIRS = (TABLES[name] for name in ("LM", "MASKED", "BASE", "CLASSES", "PAIRS"))
TEXTS, TEXT_CLASSES, TOKEN_CLASSES, SPANS, REPLACED = (
    TABLES[name] for name in ("TEXTS", "TEXT_CLASSES", "TOKEN_CLASSES", "SPANS", "REPLACED")
)

IDS = torch.randint(3, WORDS, (2, 9), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(0))


def config_class(family):
    import transformers

    from ordinate.pretrained.weights import family_of

    return transformers.CONFIG_MAPPING[family_of(family).model_type]


def drawn(family, rng):
    """A config.json as a dictionary, and the head of the model."""
    sizes, fields, heads = FIELDS[family]
    raw, kind = dict(sizes), config_class(family)
    for name in rng.sample(sorted(fields | INERT), rng.randint(0, 6)):
        value = rng.choice((fields | INERT)[name])
        raw.pop(name, None)
        if value is not OUT:
            raw[name] = value
    for alias, name in kind.attribute_map.items():
        if name in raw and rng.random() < 0.2:
            raw[alias] = raw.pop(name)
    return raw, rng.choice(heads)


def model_of(config, head):
    """The model of transformers, with numbers drawn so that each of them shows."""
    import transformers

    model = getattr(transformers, f"AutoModel{'For' * bool(head)}{head}").from_config(config).eval()
    # other kernels of experts need rows of a multiple of 16 bytes
    model.set_experts_implementation("eager")
    for parameter in model.parameters():
        # sinusoids are fixed
        if parameter.requires_grad:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    for name, buffer in (*model.named_buffers(), *model.named_parameters()):
        if name.endswith(("final_logits_bias", "e_score_correction_bias", "expert_bias", "layer_scalar")):
            buffer.data.normal_(std=0.5)
    return model


def outputs(other, head):
    """What a model of transformers makes of the inputs."""
    if head == CLASSES or not hasattr(other.config, "vocab_size"):
        height, width = numbers(other.config.image_size)
        came = other(PIXELS.repeat(1, 1, height // 8, width // 8))
    elif head == PAIRS:
        came = other(input_ids=IDS, decoder_input_ids=IDS[:, :7])
    elif head == TEXT_CLASSES:
        # decoders without a padding token classify one text at a time
        return [torch.cat([other(row[None]).logits for row in IDS])]
    else:
        came = other(IDS)
    if head == SPANS:
        return [torch.stack([came.start_logits, came.end_logits], 1)]
    if head == REPLACED:
        return [came.logits[..., None]]
    return (
        [came.logits]
        if head not in (BASE, TEXTS)
        else [came.last_hidden_state, *([] if came.get("pooler_output") is None else [came[1]])]
    )


def numbers(size):
    return (size, size) if isinstance(size, int) else size


def ours(model, head):
    """What our model makes of the same inputs, in the same order."""
    from ordinate.models.encoder import Encoder
    from ordinate.models.vision import VisionTransformer

    if isinstance(model, VisionTransformer):
        height, width = model.shape.image
        x = model(PIXELS.repeat(1, 1, height // 8, width // 8))
        if head:
            return [model.logits(x)]
        return [x, model.pool(x) if model.shape.head == "pooler" else x[:, 0]]
    if head == PAIRS:
        return [model(IDS, IDS[:, :7])]
    if head == SPANS:
        return [model.span_logits(IDS)]
    if head in (TEXT_CLASSES, TOKEN_CLASSES, REPLACED):
        return [model.class_logits(IDS)]
    if not isinstance(model, Encoder):
        return [model(IDS) if head else model.hidden_states(IDS)]
    x = model(IDS)
    return (
        [model.logits(x)]
        if head not in (BASE, TEXTS)
        else [x, *([model.pool(x)] if model.shape.head == "pooler" else [])]
    )


def judged(mine, expected):
    """Whether outputs are equal, up to rounding."""
    if len(mine) != len(expected):
        return f"WRONG: {len(mine)} outputs, {len(expected)} there"
    worst = max(
        ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else float("inf")
        for a, b in zip(mine, expected, strict=True)
    )
    return "equal" if worst < 1e-4 else f"WRONG: by {worst:.1e}"


def field_of(error, names):
    """The field that a refusal names."""
    text = str(error)
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"\b{re.escape(name)}\b", text.split(";")[0]) or re.search(rf"\b{re.escape(name)}=", text):
            return name
    return f"no field in {text[:150]!r}"


@torch.no_grad()
def there(family, seed, folder):
    """Draw a configuration of transformers, and load it."""
    from ordinate.pretrained.weights import load

    rng = random.Random(f"{family} {seed}")
    raw, head = drawn(family, rng)
    torch.manual_seed(seed)
    try:
        kind = config_class(family)
        config = kind.from_dict(dict(json.loads(json.dumps(raw))))
        model = model_of(config, head)
        expected = outputs(model, head)
        if not all(x.isfinite().all() for x in expected):
            return "not theirs", raw
    except Exception:
        return "not theirs", raw
    about = {"model_type": kind.model_type, "architectures": [type(model).__name__]}
    model.save_pretrained(folder)
    # as drawn, in place of the one that transformers wrote out in full
    (folder / "config.json").write_text(json.dumps(raw | about))
    (folder / "generation_config.json").unlink(missing_ok=True)
    try:
        mine = load(folder)
    except ValueError as error:
        nested = [key for value in raw.values() if isinstance(value, dict) for key in value]
        return f"refused: {field_of(error, [*raw, *nested, *FIELDS[family][1]])}", raw
    except Exception as error:
        return f"crash: {error!r}", raw
    return judged(ours(mine, head), expected), raw


def base_shapes(family, folder):
    """Shapes that the family can represent: those of its sizes, and of its second ones, with each head."""
    from ordinate.pretrained.weights import published_shape

    sizes, _, heads = FIELDS[family]
    found = []
    several = [sizes, *([sizes | BASES[family]] if family in BASES else [])]
    for place, (given, head) in enumerate(product(several, heads)):
        model_of(config_class(family).from_dict(dict(given)), head).save_pretrained(folder / str(place))
        found.append(published_shape(folder / str(place)))
    return found


@torch.no_grad()
def here(family, seed, bases, folder):
    """Draw a shape near one of the family, save it, and read it in transformers."""
    import transformers

    from ordinate.models.registry import MODEL_KINDS
    from ordinate.pretrained.weights import save

    rng = random.Random(f"{family} {seed}")
    torch.manual_seed(seed)
    base = rng.choice(bases)
    values = SHAPES | ({"mixer": LATENT_MIXERS + SHAPES["mixer"][:2]} if base.mixer.startswith("latent") else {})
    found = {"gated_deltanet": DELTA_MIXERS, "mamba": MAMBA_MIXERS, "mamba2": MAMBA2_MIXERS}
    found |= {"gated_short_convolution": CONVOLUTION_MIXERS, "kimi_delta_attention": KIMI_MIXERS}
    for kind, mixers in found.items():
        if kind in (one.partition(":")[0] for one in base.mixer_spec.entries):
            own = [one for one in base.mixer_spec.entries if one.startswith(("softmax", "latent"))][:1]
            attentions = own + (LATENT_MIXERS[:-1] if "latent" in base.mixer else [])
            triples = [f"{mixer},{attention},{mixer}" for mixer in mixers for attention in attentions]
            values["mixer"] = (triples or list(mixers)) + SHAPES["mixer"][:2]
    values |= TABLES["CHUNKED"] if "chunk=" in base.mixer else {}
    names = [name for name in values if hasattr(base, name)]
    changes = {name: rng.choice(values[name]) for name in rng.sample(names, rng.randint(1, 4))}
    try:
        shape = replace(base, **changes)
        kind = next(one.model for one in MODEL_KINDS.values() if one.shape is type(base))
        model = kind(shape).eval()
    except (ValueError, TypeError):
        return "not ours", changes
    for parameter in (*model.parameters(), *model.buffers()):
        if parameter.is_floating_point():
            parameter.add_(0.2 * torch.randn_like(parameter))
    try:
        save(model, folder, family)
    except ValueError as error:
        return f"refused: {field_of(error, [*changes, *names])}", changes
    except Exception as error:
        return f"crash: {error!r}", changes
    try:
        named = json.loads((folder / "config.json").read_text())["architectures"][0]
        # a class may be that of several families
        config = config_class(family).from_pretrained(folder)
        other = getattr(transformers, named).from_pretrained(folder, config=config).eval()
        other.set_experts_implementation("eager")
        head = next(
            (
                head
                for head in (LM, MASKED, CLASSES, PAIRS, TEXT_CLASSES, TOKEN_CLASSES, SPANS, REPLACED)
                if named.endswith(head)
            ),
            BASE,
        )
        head = {
            "GPT2LMHeadModel": LM,
            "OpenAIGPTLMHeadModel": LM,
            "MarianMTModel": PAIRS,
            **dict.fromkeys(
                (
                    f"{stem}ForConditionalGeneration"
                    for stem in ("Bart", "MBart", "Pegasus", "M2M100", "PLBart", "Blenderbot")
                ),
                PAIRS,
            ),
            "T5ForConditionalGeneration": PAIRS,
            "MT5ForConditionalGeneration": PAIRS,
            "UMT5ForConditionalGeneration": PAIRS,
        }.get(named, head)
        # a pooler that the model lacks is drawn at random there
        count = 1 if getattr(shape, "head", None) == "none" else 2
        return judged(ours(model, head)[:count], outputs(other, head)[:count]), changes
    except Exception as error:
        return f"crash: cannot be read: {str(error)[:200]!r}", changes


def quiet():
    """Keep transformers from writing warnings about each configuration."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")


def counts(family, number, both=("there", "here")):
    """Outcomes of this many draws, by direction."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        bases = base_shapes(family, Path(name)) if "here" in both else []
        for way in both:
            found[way] = []
            for seed in range(number):
                folder = Path(name, way, str(seed))
                folder.mkdir(parents=True)
                found[way].append(
                    there(family, seed, folder) if way == "there" else here(family, seed, bases, folder)
                )
                for file in folder.iterdir():
                    file.unlink()
    return found


def main(number, *families):
    """Print a JSON object for each family and direction, and what broke the contract."""
    quiet()
    torch.set_num_threads(1)
    for family in families or FIELDS:
        for way, found in counts(family, int(number)).items():
            kinds = Counter(
                outcome if outcome.startswith("refused") else outcome.split(":")[0] for outcome, _ in found
            )
            print(json.dumps({"family": family, "direction": way, **dict(kinds.most_common())}), flush=True)
            for outcome, came in found:
                if outcome.startswith(BROKEN):
                    print("!", outcome[:300], came, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
