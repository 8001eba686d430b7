"""For the checkers of the storms and the soak: where the machine stood still, dlock could not act."""

import threading
import time


class StallWitness(threading.Thread):
    """Notes when the machine did not let it run, in the unit of the clock `now`, whose second has
    `second` of them, if that took more than `worth_noting` seconds."""

    PAUSE = 0.02

    def __init__(self, now, second, worth_noting):
        super().__init__(daemon=True)
        self.now, self.second, self.worth_noting = now, second, worth_noting
        self.stalls = []

    def run(self):
        while True:
            due = self.now() + self.PAUSE * self.second
            time.sleep(self.PAUSE)
            if self.now() - due > self.worth_noting * self.second:
                self.stalls.append((due, self.now()))
