from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from a2lp.bench.protocol import draw_episodes, make_method, saved_episodes
from a2lp.errors import A2LPWarning, ClassTooSmallError, InputError, UnknownNameError
from a2lp.features import BaseStatistics, FeatureSet

SIZES = {"n_way": 3, "n_query": 5, "n_tasks": 4, "seed": 0}


def test_key_follows_everything_that_decides_the_numbers(make_cells, digits):
    def key(**change):
        return make_cells(["lp"], **change)[0].key

    nudged = digits.features.copy()
    nudged[0, 0] += 1
    keys = [
        key(),
        key(seed=1),
        key(n_tasks=13),
        key(shots=(2,)),
        key(preprocess=("plc",)),
        key(params={"lp": {"alpha": 0.7}}),
        key(engine="reference"),
        key(device="torch"),
        key(features=dataclasses.replace(digits, features=nudged)),
        make_cells(["a2lp"])[0].key,
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_config_is_json_and_has_the_defaults(make_cells):
    config = make_cells(["a2lp"])[0].config
    assert json.loads(json.dumps(config)) == config
    assert config["params"]["steps"] == 1000
    assert (config["n_way"], config["n_shot"], config["queries_per_task"], config["n_tasks"]) == (3, 1, 30, 12)


def test_all_methods_share_the_tasks(make_cells):
    cells = make_cells(["prototypical", "lp"], preprocess=("l2", "plc"), shots=(1, 2))
    order = [(c.method.preprocess, c.episodes.tasks.n_shot, c.name) for c in cells]
    assert order == [(p, k, m) for p in ("l2", "plc") for k in (1, 2) for m in ("prototypical", "lp")]
    assert len({id(c.episodes) for c in cells}) == 2


def test_tasks_do_not_depend_on_which_other_shots_run(make_cells):
    alone = make_cells(["lp"], shots=(2,))[0]
    among = make_cells(["lp"], shots=(1, 2))[1]
    assert alone.key == among.key


@pytest.mark.parametrize(("sampler", "own"), [("balanced", {}), ("dirichlet", {}), ("k_eff", {"k_eff": 2})])
def test_every_sampler_gives_tasks_of_the_same_size(digits, sampler, own):
    [episodes] = draw_episodes(digits, [sampler], (1,), {sampler: own}, **SIZES)
    assert episodes.tasks.query.shape == (4, 15)
    assert episodes.tasks.about["sampler"] == sampler


def test_the_authors_tasks_of_another_file_are_noticed(digits):
    with pytest.warns(A2LPWarning, match="not the authors' file of cub"):
        [episodes] = draw_episodes(digits, ["authors"], (1,), {"authors": {"dataset": "cub"}}, **SIZES | {"seed": None})
    assert episodes.config["seed"] == 48


def test_the_error_names_the_class(digits):
    with pytest.raises(ClassTooSmallError, match="class '8' has 174"):
        draw_episodes(digits, shots=(170,), **SIZES)


def test_unlabelled_features_cannot_give_tasks():
    with pytest.raises(InputError, match="have no labels"):
        draw_episodes(FeatureSet(np.eye(4)), **SIZES)


def test_tasks_of_other_features_are_noticed(digits):
    tasks = draw_episodes(digits, shots=(1,), **SIZES)[0].tasks
    saved_episodes(digits, tasks)
    with pytest.warns(A2LPWarning, match="may have been drawn from other features"):
        saved_episodes(dataclasses.replace(digits, labels=np.roll(digits.labels, 1)), tasks)
    with pytest.raises(InputError, match="has 10 rows"):
        saved_episodes(FeatureSet(digits.features[:10], name="ten"), tasks)


def test_base_goes_to_those_who_use_it(digits):
    base = BaseStatistics.of(digits.features, digits.labels)
    for how in ("cl2n", "whiten"):
        assert make_method("lp", {"preprocess": how}, base).base is base
    assert make_method("lp", {"preprocess": "l2"}, base).base is None


def test_values_of_the_wrong_kind_and_unknown_parameters():
    with pytest.raises(InputError, match="alpha='high'"):
        make_method("lp", {"alpha": "high"})
    with pytest.raises(UnknownNameError, match="'alpha'"):
        make_method("lp", {"alfa": 0.5})
