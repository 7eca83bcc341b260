"""Padding is taken off, or refused; nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import InputError
from posbias.measure.padding import refuse_padding, unpadded


@given(data=st.data())
def test_windows_survive_any_padding(data):
    count, n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    most = data.draw(st.integers(0, 4))
    ids = np.arange(1, 1 + count * n).reshape(count, n)
    rows, masks = [], []
    for window in ids:
        before = data.draw(st.integers(0, most))
        rows.append([0] * before + window.tolist() + [0] * (most - before))
        masks.append([0] * before + [1] * n + [0] * (most - before))
    for form in (list, np.array, torch.tensor):
        batch = {"input_ids": form(rows), "attention_mask": form(masks)}
        np.testing.assert_array_equal(unpadded(batch), ids)


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([[1, 2], [3, 4]], [[1, 1], [0, 1]], "row 0 of the batch has 2 tokens, row 1 has 1"),
        ([[1, 2, 3]], [[1, 0, 1]], "row 0 of the batch has padding between"),
        ([[1, 2, 3], [4, 5, 6]], [[1, 1, 0], [1, 0, 1]], "row 1 of the batch has padding between"),
        ([[1, 2]], [[1, 2]], "other values than 0 and 1"),
        ([[1, 2]], [[1, 1, 1]], "both must be the same"),
        ([[1, 2], [3]], [[1, 1], [1]], "pad all rows to one length"),
        ([[0.5, 2.0]], [[1, 1]], "integers of shape"),
        ([1, 2], [1, 1], "integers of shape"),
    ],
)
def test_what_is_no_padded_batch_is_refused(ids, mask, message):
    with pytest.raises(InputError, match=message):
        unpadded({"input_ids": ids, "attention_mask": mask})


def test_both_entries_are_required():
    with pytest.raises(InputError, match="no attention_mask"):
        unpadded({"input_ids": [[1, 2]]})
    with pytest.raises(InputError, match="no input_ids"):
        unpadded({"attention_mask": [[1, 1]]})


@pytest.mark.parametrize("ids", [[[1, 2], [0, 3]], [[1, 2], [3, 0]]])
def test_padding_without_a_mask_is_refused(ids):
    with pytest.raises(InputError, match="window 1 begins or ends"):
        refuse_padding(np.array(ids), 0)
    refuse_padding(np.array(ids), None)
    refuse_padding(np.array([[1, 0, 2]]), 0)
