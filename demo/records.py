"""Rows of look-up records as token ids, made where the model trains: as many as it takes, none twice.

A row is one list of records ("- red fox:apple") under the opening of a chat turn. Either its lines come again and again,
drawn anew each time, or questions about them follow; so nearly every line asks for a word seen before. A question's answer
repeats the record, hence both kinds are solved by the same step: find the place where this key stood, say what followed.
"""
import torch

import synthetic

ADJECTIVE, ANIMAL, VALUE = -1, -2, -3  # slots in a template
FEWEST = 3  # records in a list
EXAMPLE = (" red", " fox", ":apple")


class Templates:
    """Token ids of the fixed text and of the words that fill the slots, read off the texts that synthetic.py writes."""

    def __init__(self, tok):
        ids = lambda text: tok.encode(text).ids
        self.words = [[one(ids(mark + w), w) for w in words] for mark, words in
                      ((" ", synthetic.ADJECTIVES), (" ", synthetic.ANIMALS), (":", synthetic.VALUES))]
        slots = {one(ids(w), w): slot for w, slot in zip(EXAMPLE, (ADJECTIVE, ANIMAL, VALUE))}
        key, value = "red fox", "apple"
        fill = lambda text: [slots.get(t, t) for t in ids(text)]
        self.head = ids("[gMASK]<sop><|user|>" + synthetic.LOOKUP_HEAD)
        self.line = fill(synthetic.record(key, value) + "\n")
        turn = synthetic.turn(synthetic.lookup_question(key), synthetic.record(key, value)) + "<|user|>"
        self.question = fill(turn.removeprefix("<|user|>"))  # the first question stands in the turn that the list opens
        opened = self.question.index(tok.token_to_id("</think>"))
        self.line_weight = [float(t == VALUE) for t in self.line]
        self.question_weight = [1.0 if t == VALUE else 0.1 * (i > opened) for i, t in enumerate(self.question)]


def one(ids, word):
    if len(ids) != 1:
        raise SystemExit(f"the vocabulary cuts {word!r} into {len(ids)} tokens; the look-up words must be one each")
    return ids[0]


class Records:
    """Batches of look-up rows on a device."""

    def __init__(self, tok, device, seed):
        self.t = Templates(tok)
        self.device = device
        self.gen = torch.Generator(device=device).manual_seed(seed)
        self.words = [torch.tensor(w, device=device) for w in self.t.words]

    def rand(self, *shape):
        return torch.rand(*shape, generator=self.gen, device=self.device)

    def pairs(self, counts, most):
        """Row by row `counts` distinct (adjective, animal) pairs, from a grid of words: the tighter, the more they share."""
        na, nb = len(self.words[0]), len(self.words[1])
        rows = len(counts)
        wide = counts[:, None] * (na * nb / counts[:, None]) ** self.rand(rows, 1)  # cells of the grid
        a = torch.maximum(wide.sqrt() * 2 ** (2 * self.rand(rows, 1) - 1), wide / nb).ceil().clamp(max=na)
        b = (wide / a).ceil().clamp(max=nb)
        a = torch.where(a * b < counts[:, None], float(na), a)  # rounding may leave too few cells
        rank_a, rank_b = (self.rand(rows, n).argsort(-1).argsort(-1) for n in (na, nb))
        inside = (rank_a < a)[:, :, None] & (rank_b < b)[:, None, :]
        order = (self.rand(rows, na, nb) + inside).flatten(1).topk(most, -1).indices
        return order // nb, order % nb

    def batch(self, rows, length, most):
        """ids, loss weights and the records whose words stand there [rows, length]; half of the rows repeats, half asks."""
        t, device = self.t, self.device
        head, line, question = len(t.head), len(t.line), len(t.question)
        lines = (length - head) // line + 1
        asks = torch.arange(rows, device=device) >= (rows + 1) // 2
        top = torch.where(asks, lines - 4 * question // line, lines // 2).clamp(max=most)
        counts = (FEWEST * ((top + 1) / FEWEST) ** self.rand(rows)).long()  # log-uniform
        listed = torch.where(asks, counts, lines)[:, None]
        adjective, animal = self.pairs(counts, min(most, lines))
        value = torch.randint(len(self.words[2]), adjective.shape, generator=self.gen, device=device)
        n = counts[:, None]
        asked = (self.rand(rows, lines) * n).long()
        listing = torch.arange(lines, device=device).expand(rows, -1)
        listing = torch.where(listing < n, listing, asked)
        place = torch.arange(length, device=device)[None] - head
        past = place - listed * line
        in_list = past < 0
        item = torch.where(in_list, place.clamp(min=0) // line, past.clamp(min=0) // question)
        record = torch.where(in_list, listing.gather(1, item), asked.gather(1, item))
        table = torch.tensor([*t.head, *t.line, *t.question], device=device)
        weigh = torch.tensor([*[0.0] * head, *t.line_weight, *t.question_weight], device=device)
        where = torch.where(in_list, head + place % line, head + line + past % question)
        where = torch.where(place < 0, place + head, where)
        ids, weight = table[where], weigh[where]
        said = torch.where(ids == VALUE, record, -1)  # the record whose word stands here
        weight = weight * ~(in_list & (item < n))  # the first time it cannot be known
        for slot, words, index in zip((ADJECTIVE, ANIMAL, VALUE), self.words, (adjective, animal, value)):
            ids = torch.where(ids == slot, words[index.gather(1, record)], ids)
        return ids, weight, said


def guides(weight, said):
    """Where attention should look, by layer, for what was made by `batch`: two heads of the first layer at the tokens one and
    two back, two heads of the second, before a word to be known, at the places where that word stood."""
    t = said.shape[1] - 1
    eye = torch.eye(t + 2, dtype=torch.bool, device=said.device)
    back = torch.stack((eye[:t, 1: t + 1], eye[:t, 2: t + 2]))[None]
    asked = torch.where(weight[:, 1:] == 1, said[:, 1:], -2)
    found = (asked[:, :, None] == said[:, None, :-1]).tril()
    return {0: back, 1: found[:, None].expand(-1, 2, -1, -1)}
