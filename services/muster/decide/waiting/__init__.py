"""Waiting: what a gang that fits its share, but not the room, may count on.

durations   when what runs will end: known, else learned from what has ended
promotion   who waited so long that it goes first
estimates   where, and when, a gang will fit
holding     the room of reservations in one decision: who may use it until then
eviction    who may be asked to leave for a reservation, whatever its priority
decayed     past usage of queues, for the weights of what is left
stability   since when a queue's share has been what it is
    sentences   what people are told of reservations

How a decision makes and keeps reservations: `muster.decide.scheduling.reserving`.
"""
