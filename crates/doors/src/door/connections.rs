//! The connections of one door, and which one makes room when there are too many.
//!
//! ```text
//!   arrives ─► a seat? ─► idle ◄──► busy: a request that was admitted is being answered
//!                │ none    │
//!                │         └─ told to leave: the longest idle one, when a new connection needs its seat
//!                └ none, and all are busy: refused
//! ```
//!
//! A connection is idle while it has sent nothing, half a request, or a request that was not admitted:
//! a thousand of these cost no other client a call. The entrance says when a request is admitted
//! ([`Visit`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The seats behind one door.
#[derive(Debug)]
pub struct Connections {
    most: usize,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    taken: usize,
    /// Goes up each time that a connection becomes idle.
    clock: u64,
    /// Idle connections, by the clock when they became idle.
    idle: BTreeMap<u64, CancellationToken>,
}

/// The seat of one connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Seat {
    all: Arc<Connections>,
    leave: CancellationToken,
    state: Mutex<State>,
    answers: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle(u64),
    Busy,
    /// Told to leave: another connection has the seat already.
    Given,
}

/// While it lives, its connection is busy.
#[derive(Debug)]
struct Busy(Arc<Seat>);

/// A request on its connection. The entrance and the answer share it.
#[derive(Clone, Debug)]
pub struct Visit {
    seat: Arc<Seat>,
    busy: Arc<Mutex<Option<Busy>>>,
}

impl Visit {
    /// A request that has just come on a connection.
    pub fn to(seat: &Arc<Seat>) -> Self {
        Self { seat: Arc::clone(seat), busy: Arc::default() }
    }

    /// Admits the request: its connection is busy from now on.
    pub fn admit(&self) {
        self.lock().get_or_insert_with(|| self.seat.busy());
    }

    /// The answer is over.
    pub fn end(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Busy>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// A door of at most `most` connections.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, seats: Mutex::default() })
    }

    /// A seat for a new connection; `leave` is cancelled when the connection has to close. None when all
    /// are busy.
    pub fn seat(self: &Arc<Self>, leave: CancellationToken) -> Option<Arc<Seat>> {
        let mut seats = self.lock();
        if seats.taken >= self.most {
            let (_, longest) = seats.idle.pop_first()?;
            longest.cancel();
        } else {
            seats.taken += 1;
        }
        let since = seats.sit_down(&leave);
        drop(seats);
        let (all, state) = (Arc::clone(self), Mutex::new(State::Idle(since)));
        Some(Arc::new(Seat { all, leave, state, answers: AtomicUsize::new(0) }))
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn sit_down(&mut self, leave: &CancellationToken) -> u64 {
        self.clock += 1;
        self.idle.insert(self.clock, leave.clone());
        self.clock
    }
}

impl Seat {
    fn busy(self: &Arc<Self>) -> Busy {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut seats = self.all.lock();
        let mut state = self.state();
        if let State::Idle(since) = *state {
            // A connection that was told to leave at this moment still gets its answer.
            let mine = seats.idle.remove(&since).is_some();
            *state = if mine { State::Busy } else { State::Given };
        }
        drop((seats, state));
        Busy(Arc::clone(self))
    }

    /// Whether a request that was admitted is being answered.
    pub fn is_busy(&self) -> bool {
        self.answers.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
        let mut seats = self.0.all.lock();
        let mut state = self.0.state();
        if *state == State::Busy {
            *state = State::Idle(seats.sit_down(&self.0.leave));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.all.lock();
        let mine = match *self.state() {
            State::Idle(since) => seats.idle.remove(&since).is_some(),
            State::Busy => true,
            State::Given => false,
        };
        if mine {
            seats.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(all: &Arc<Connections>) -> Option<Arc<Seat>> {
        all.seat(CancellationToken::new())
    }

    #[test]
    fn the_longest_idle_connection_makes_room_and_no_busy_one_does() {
        let all = Connections::new(3);
        let seats: Vec<_> = (0..3).map(|_| arrive(&all).unwrap()).collect();
        let answering = seats[0].busy();
        // It has been idle for less long than the third since then.
        drop(seats[1].busy());
        let fourth = arrive(&all).unwrap();
        let gone: Vec<bool> = seats.iter().map(|seat| seat.leave.is_cancelled()).collect();
        assert_eq!(gone, [false, false, true]);
        let (second, fourth) = (seats[1].busy(), fourth.busy());
        assert!(arrive(&all).is_none(), "all are busy");
        drop((answering, second, fourth));
        assert!(arrive(&all).is_some());
    }

    #[test]
    fn a_seat_is_given_back_once() {
        let all = Connections::new(2);
        let (first, second) = (arrive(&all).unwrap(), arrive(&all).unwrap());
        let third = arrive(&all).unwrap();
        assert!(first.leave.is_cancelled());
        // A request that had come just then is answered; the seat is the third's all the same.
        drop(first.busy());
        drop(first);
        assert_eq!(all.lock().taken, 2);
        drop((second, third));
        let Seats { taken, idle, .. } = &*all.lock();
        assert_eq!((*taken, idle.len()), (0, 0));
    }

    #[test]
    fn a_request_that_is_not_admitted_leaves_its_connection_idle() {
        let all = Connections::new(1);
        let seat = arrive(&all).unwrap();
        let visit = Visit::to(&seat);
        let answer = visit.clone();
        assert!(!seat.is_busy());
        visit.admit();
        visit.admit();
        assert!(seat.is_busy() && arrive(&all).is_none());
        // Other clones of it change nothing any more.
        answer.end();
        assert!(!seat.is_busy());
        let stranger = Visit::to(&seat);
        assert!(arrive(&all).is_some() && seat.leave.is_cancelled());
        drop((visit, stranger));
    }

    #[test]
    fn a_connection_is_busy_until_its_last_answer_is_over() {
        let all = Connections::new(1);
        let seat = arrive(&all).unwrap();
        assert!(!seat.is_busy());
        let answer = seat.busy();
        assert!(seat.is_busy() && arrive(&all).is_none());
        drop(answer);
        assert!(!seat.is_busy());
    }
}
