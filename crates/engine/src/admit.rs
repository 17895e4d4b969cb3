//! Whether a call may go on, as a plain function.

/// What decides about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Idle instances of its handler.
    pub(crate) idle: usize,
    /// Instances of its handler, idle, busy or being made.
    pub(crate) live: u32,
    /// Most instances that its handler may have; 0 counts as 1.
    pub(crate) concurrency: u32,
    /// Sandboxes that there may still be, over all handlers.
    pub(crate) free: usize,
    /// Idle instances of other handlers: each can make room for one.
    pub(crate) spare: usize,
    /// Free permits for making sandboxes.
    pub(crate) permits: usize,
    /// Calls that wait already, over all handlers.
    pub(crate) waiting: usize,
    /// Most calls that may wait.
    pub(crate) queue: usize,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Take an idle instance.
    Resume,
    /// Make an instance now.
    Make,
    /// Make an instance when a permit is free, or take one that comes back earlier.
    AwaitPermit,
    /// Its handler has all its instances: take one that comes back, or the place of one that ends.
    AwaitInstance,
    /// Come back later.
    Refuse,
}

pub(crate) fn admit(demand: Demand) -> Admission {
    let room = demand.live < demand.concurrency.max(1);
    if demand.idle > 0 {
        Admission::Resume
    } else if room && demand.free + demand.spare == 0 {
        // It is unknown when a call of another handler ends.
        Admission::Refuse
    } else if room && demand.permits > 0 {
        Admission::Make
    } else if demand.waiting >= demand.queue {
        Admission::Refuse
    } else if room {
        Admission::AwaitPermit
    } else {
        Admission::AwaitInstance
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn demands()(
            idle in 0usize..3, live in 0u32..6, concurrency in 0u32..6, free in 0usize..3, spare in 0usize..3,
            permits in 0usize..3, waiting in 0usize..4, queue in 0usize..4,
        ) -> Demand {
            Demand { idle, live, concurrency, free, spare, permits, waiting, queue }
        }
    }

    proptest! {
        #[test]
        fn an_idle_instance_is_always_taken_and_only_then_is_one_resumed(demand in demands()) {
            prop_assert_eq!(admit(demand) == Admission::Resume, demand.idle > 0);
        }

        #[test]
        fn no_handler_gets_more_instances_than_it_may_have(demand in demands()) {
            if demand.live >= demand.concurrency.max(1) {
                prop_assert!(!matches!(admit(demand), Admission::Make | Admission::AwaitPermit));
            }
        }

        #[test]
        fn a_call_that_nobody_can_make_room_for_is_refused_at_once(demand in demands()) {
            if demand.free == 0 && demand.spare == 0 {
                prop_assert!(!matches!(admit(demand), Admission::Make | Admission::AwaitPermit));
            }
        }

        #[test]
        fn a_call_waits_only_while_the_queue_has_room(demand in demands()) {
            if matches!(admit(demand), Admission::AwaitPermit | Admission::AwaitInstance) {
                prop_assert!(demand.waiting < demand.queue);
            }
        }

        #[test]
        fn a_call_that_could_start_now_neither_waits_nor_is_refused(demand in demands()) {
            let room = demand.live < demand.concurrency.max(1) && demand.free + demand.spare > 0;
            if room && demand.permits > 0 {
                prop_assert!(matches!(admit(demand), Admission::Resume | Admission::Make));
            }
        }
    }
}
