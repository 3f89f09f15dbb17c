"""Rounds as one worker lives through them, counted and timed."""

import math

from penstock.api import SampleWindow
from penstock.herder.cluster.group_metrics import RoundCounts


class Counted:
    """Rounds over a clock that a test moves."""

    def __init__(self):
        self.now_s = 100.0
        self.rounds = RoundCounts(lambda: self.now_s, SampleWindow(30, 2))

    def join(self, generation, took_s=0.0):
        self.rounds.begins()
        self.now_s += took_s
        self.rounds.ends(generation)

    def force(self, generation, took_s=0.0):
        self.now_s += took_s
        self.rounds.in_force(generation)


def test_before_the_first_round_there_is_nothing_to_tell():
    rounds = Counted().rounds
    assert (rounds.completed, rounds.under_way, rounds.since_last_ms) == (0, False, math.inf)
    assert math.isnan(rounds.longest_ms)
    assert math.isnan(rounds.average_ms)


def test_a_round_lasts_from_the_wish_to_join_until_its_work_runs():
    made = Counted()
    made.join(1, took_s=2)
    assert made.rounds.under_way
    assert made.rounds.completed == 0
    made.force(1, took_s=3)
    assert (made.rounds.completed, made.rounds.under_way, made.rounds.longest_ms) == (1, False, 5000)
    made.now_s += 7
    assert made.rounds.since_last_ms == 7000


def test_the_longest_and_the_average_are_those_of_the_window():
    made = Counted()
    made.join(1, took_s=10)
    made.force(1)
    made.now_s += 40
    made.join(2, took_s=2)
    made.force(2)
    assert (made.rounds.longest_ms, made.rounds.average_ms) == (10000, 6000)
    made.now_s += 30
    assert (made.rounds.longest_ms, made.rounds.average_ms) == (2000, 2000)
    made.now_s += 60
    assert math.isnan(made.rounds.longest_ms)
    assert made.rounds.completed == 2


def test_a_round_that_another_one_overtakes_is_a_part_of_it():
    made = Counted()
    made.join(1, took_s=1)
    made.join(2, took_s=1)
    made.force(2, took_s=1)
    assert (made.rounds.completed, made.rounds.longest_ms, made.rounds.under_way) == (1, 3000, False)


def test_a_round_comes_into_force_while_the_next_one_has_begun():
    made = Counted()
    made.join(1)
    made.rounds.begins()
    made.force(1, took_s=1)
    assert (made.rounds.completed, made.rounds.under_way) == (1, True)
    made.rounds.ends(2)
    made.force(2, took_s=1)
    assert (made.rounds.completed, made.rounds.under_way, made.rounds.longest_ms) == (2, False, 2000)


def test_who_drops_out_joins_until_a_round_is_in_force_again():
    made = Counted()
    made.join(1)
    made.rounds.lost()
    made.force(1)
    assert (made.rounds.completed, made.rounds.under_way) == (0, True)
    made.join(4, took_s=6)
    made.force(4)
    assert (made.rounds.completed, made.rounds.longest_ms) == (1, 6000)
