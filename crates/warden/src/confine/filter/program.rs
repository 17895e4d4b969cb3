//! A filter as the kernel runs it: a search tree over the numbers of system calls, in classic BPF.
//!
//! ```text
//!   architecture? ─ another ─► kill        number < n ? ─ yes ─► … ─► allow
//!        │ ours                      ▲          │ no              ├──► ENOSYS
//!        └── load the number ────────┘          ▼ …               └──► look at arguments ─► allow | ENOSYS
//! ```
//! A tree and not a chain, because of the cost of installing: for each system call the kernel runs
//! the filter to learn whether the call is allowed with any arguments (`seccomp_cache_prepare`,
//! Linux 5.11). A chain of 1240 instructions takes about a millisecond at each start of an
//! interpreter. In a tree one run is some ten instructions long, and installing takes a tenth of
//! that (docs/developer/decisions/0005).

use std::collections::BTreeMap;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, c_long, sock_filter,
};

/// Instructions, ready for `seccomp(2)`.
pub type Program = Vec<sock_filter>;

/// A test of one argument. Compares the lower 32 of its 64 bits, except for [`Test::Null`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equal to this value.
    Is(u32),
    /// Not equal to this value.
    IsNot(u32),
    /// Equal to `value` in the bits of the mask.
    Masked {
        /// The compared bits.
        mask: u32,
        /// The expected bits.
        value: u32,
    },
    /// Not equal to `value` in the bits of the mask.
    NotMasked {
        /// The compared bits.
        mask: u32,
        /// The forbidden bits.
        value: u32,
    },
    /// A null pointer: all 64 bits are 0.
    Null,
}

/// A call is allowed when all of these hold: `(position of the argument, test)`.
pub type Case = Vec<(u32, Test)>;

/// The treatment of a listed system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Allowed with any arguments.
    Always,
    /// Allowed in any of these cases.
    When(Vec<Case>),
    /// Allowed in any of these cases, otherwise this error. Error 0 means: report success and do
    /// nothing, for calls that only advise the kernel, where an error would be a surprise.
    WhenElse(Vec<Case>, i32),
    /// Reports success and does nothing in the first cases; allowed in the second.
    IgnoredOrWhen(Vec<Case>, Vec<Case>),
}

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// The treatment of calls by another architecture's convention, whose numbers mean other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignAbi {
    /// The caller is killed.
    Killed,
    /// The call passes: the filter then stops nothing.
    Allowed,
}

/// Compiles an allow-list. Every other call is ENOSYS, x32's numbers included.
#[must_use]
pub fn compile(rules: &BTreeMap<c_long, Rule>, foreign: ForeignAbi) -> Program {
    let mut program = vec![
        load(ARCHITECTURE),
        jump(BPF_JEQ, OURS, 1, 0),
        answer(match foreign {
            ForeignAbi::Killed => SECCOMP_RET_KILL_PROCESS,
            ForeignAbi::Allowed => SECCOMP_RET_ALLOW,
        }),
        load(NUMBER),
    ];
    program.extend(tree(&segments(rules)));
    program
}

/// The rule from this number on, up to the next segment's.
struct Segment<'a> {
    first: u32,
    rule: Option<&'a Rule>,
}

fn segments(rules: &BTreeMap<c_long, Rule>) -> Vec<Segment<'_>> {
    let mut segments = vec![Segment { first: 0, rule: None }];
    let mut next = 0;
    for (number, rule) in rules {
        // No system call has a negative number.
        let Ok(number) = u32::try_from(*number) else { continue };
        if number > next {
            segments.push(Segment { first: next, rule: None });
        }
        segments.push(Segment { first: number, rule: Some(rule) });
        next = number + 1;
    }
    segments.push(Segment { first: next, rule: None });
    // Adjacent segments with equal rules become one. Of two that begin at one number the first is
    // empty.
    let mut merged: Vec<Segment<'_>> = Vec::new();
    for segment in segments {
        merged.pop_if(|last| last.first == segment.first);
        let alike = |last: &Segment<'_>| {
            last.rule == segment.rule && matches!(segment.rule, None | Some(Rule::Always))
        };
        if !merged.last().is_some_and(alike) {
            merged.push(segment);
        }
    }
    merged
}

fn tree(segments: &[Segment<'_>]) -> Program {
    if let [one] = segments {
        return leaf(one.rule);
    }
    let (low, high) = segments.split_at(segments.len() / 2);
    let (below, above) = (tree(low), tree(high));
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![jump(BPF_JGE, high[0].first, distance, 0)],
        // Conditional jumps reach 255 instructions.
        Err(_) => vec![jump(BPF_JGE, high[0].first, 0, 1), far_jump(below.len())],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(rule: Option<&Rule>) -> Program {
    match rule {
        None => vec![refuse()],
        Some(Rule::Always) => vec![answer(SECCOMP_RET_ALLOW)],
        Some(Rule::When(cases)) => allow_in(cases, refuse()),
        Some(Rule::WhenElse(cases, error)) => allow_in(cases, fail(*error)),
        Some(Rule::IgnoredOrWhen(ignored, cases)) => {
            let mut program = answer_in(ignored, fail(0));
            program.extend(allow_in(cases, refuse()));
            program
        }
    }
}

fn allow_in(cases: &[Case], otherwise: sock_filter) -> Program {
    let mut program = answer_in(cases, answer(SECCOMP_RET_ALLOW));
    program.push(otherwise);
    program
}

/// Returns `said` in any of these cases, or goes on with the next instruction.
fn answer_in(cases: &[Case], said: sock_filter) -> Program {
    cases.iter().flat_map(|case| answer_when(case, said)).collect()
}

fn answer_when(case: &[(u32, Test)], said: sock_filter) -> Program {
    let mut program = vec![said];
    for (argument, test) in case.iter().rev() {
        // The rest of a case is a few instructions long.
        let past = u8::try_from(program.len()).unwrap_or(u8::MAX);
        let mut looked = vec![load(ARGUMENTS + 8 * argument)];
        match *test {
            Test::Is(value) => looked.push(jump(BPF_JEQ, value, 0, past)),
            Test::IsNot(value) => looked.push(jump(BPF_JEQ, value, past, 0)),
            Test::Masked { mask, value } => {
                looked.push(instruction(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0));
                looked.push(jump(BPF_JEQ, value, 0, past));
            }
            Test::NotMasked { mask, value } => {
                looked.push(instruction(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0));
                looked.push(jump(BPF_JEQ, value, past, 0));
            }
            Test::Null => looked.extend([
                jump(BPF_JEQ, 0, 0, past.saturating_add(2)),
                load(ARGUMENTS + 8 * argument + 4),
                jump(BPF_JEQ, 0, 0, past),
            ]),
        }
        looked.extend(program);
        program = looked;
    }
    program
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn jump(kind: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    instruction(BPF_JMP | kind | BPF_K, value, yes, no)
}

fn far_jump(distance: usize) -> sock_filter {
    // The kernel takes programs of at most 4096 instructions.
    instruction(BPF_JMP | BPF_JA, u32::try_from(distance).unwrap_or(u32::MAX), 0, 0)
}

fn answer(what: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, what, 0, 0)
}

fn refuse() -> sock_filter {
    fail(libc::ENOSYS)
}

/// Error 0 is no error: the caller gets 0, and the kernel does nothing (seccomp(2)).
fn fail(error: i32) -> sock_filter {
    answer(SECCOMP_RET_ERRNO | error.unsigned_abs())
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // Codes of classic BPF have 16 bits.
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the kernel takes arguments in two halves")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel's answer, and the number of instructions it takes.
    fn run(
        program: &[sock_filter],
        architecture: u32,
        number: u32,
        arguments: [u64; 6],
    ) -> (u32, usize) {
        let (mut at, mut value, mut steps) = (0, 0, 0);
        loop {
            let here = program[at];
            at += 1;
            steps += 1;
            let code = u32::from(here.code);
            match code {
                _ if code == BPF_LD | BPF_W | BPF_ABS => {
                    value = match here.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => {
                            let whole = arguments[((offset - ARGUMENTS) / 8) as usize];
                            (whole >> ((offset - ARGUMENTS) % 8 * 8)) as u32
                        }
                    }
                }
                _ if code == BPF_ALU | BPF_AND | BPF_K => value &= here.k,
                _ if code == BPF_JMP | BPF_JA => at += here.k as usize,
                _ if code == BPF_JMP | BPF_JEQ | BPF_K => {
                    at += usize::from(if value == here.k { here.jt } else { here.jf });
                }
                _ if code == BPF_JMP | BPF_JGE | BPF_K => {
                    at += usize::from(if value >= here.k { here.jt } else { here.jf });
                }
                _ => return (here.k, steps),
            }
        }
    }

    fn expected(rules: &BTreeMap<c_long, Rule>, number: u32, arguments: [u64; 6]) -> u32 {
        let holds = |(argument, test): &(u32, Test)| {
            let whole = arguments[*argument as usize];
            let value = whole as u32;
            match *test {
                Test::Null => whole == 0,
                Test::Is(wanted) => value == wanted,
                Test::IsNot(unwanted) => value != unwanted,
                Test::Masked { mask, value: wanted } => value & mask == wanted,
                Test::NotMasked { mask, value: unwanted } => value & mask != unwanted,
            }
        };
        let refused = SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
        let any = |cases: &[Case]| cases.iter().any(|case| case.iter().all(holds));
        let (cases, otherwise) = match rules.get(&c_long::from(number)) {
            None => return refused,
            Some(Rule::Always) => return SECCOMP_RET_ALLOW,
            Some(Rule::When(cases)) => (cases, refused),
            Some(Rule::WhenElse(cases, error)) => (cases, SECCOMP_RET_ERRNO | error.unsigned_abs()),
            Some(Rule::IgnoredOrWhen(ignored, _)) if any(ignored) => return SECCOMP_RET_ERRNO,
            Some(Rule::IgnoredOrWhen(_, cases)) => (cases, refused),
        };
        let allowed = any(cases);
        if allowed { SECCOMP_RET_ALLOW } else { otherwise }
    }

    fn tests() -> impl Strategy<Value = Test> {
        prop_oneof![
            (0u32..4).prop_map(Test::Is),
            (0u32..4).prop_map(Test::IsNot),
            Just(Test::Null),
            (0u32..4, 0u32..4).prop_map(|(mask, value)| Test::Masked { mask, value: value & mask }),
            (0u32..4, 0u32..4)
                .prop_map(|(mask, value)| Test::NotMasked { mask, value: value & mask }),
        ]
    }

    /// Values that the tests tell apart, with and without bits in the upper half.
    fn arguments() -> impl Strategy<Value = u64> {
        (0u64..4, prop::bool::weighted(0.3)).prop_map(|(low, high)| low | u64::from(high) << 32)
    }

    fn lists() -> impl Strategy<Value = BTreeMap<c_long, Rule>> {
        let case = prop::collection::vec((0u32..6, tests()), 1..3);
        let judged =
            (prop::collection::vec(case, 2..5), 0..4).prop_map(|(mut cases, kind)| match kind {
                0 => Rule::WhenElse(cases, 0),
                1 => Rule::WhenElse(cases, libc::ENOTTY),
                2 => Rule::IgnoredOrWhen(cases.split_off(1), cases),
                _ => Rule::When(cases),
            });
        let rule = prop_oneof![3 => Just(Rule::Always), 1 => judged];
        prop::collection::btree_map(0i64..470, rule, 0..400)
            .prop_map(|rules| rules.into_iter().map(|(n, rule)| (n as c_long, rule)).collect())
    }

    proptest! {
        #[test]
        fn exactly_the_list_is_allowed(rules in lists(), arguments in prop::array::uniform6(arguments())) {
            let program = compile(&rules, ForeignAbi::Killed);
            prop_assert!(program.len() < 4096);
            for number in (0..520).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
                let (answer, _) = run(&program, OURS, number, arguments);
                prop_assert_eq!(answer, expected(&rules, number, arguments), "{}", number);
            }
        }
    }

    #[test]
    fn another_architectures_call_kills() {
        let rules = BTreeMap::from([(libc::SYS_read, Rule::Always)]);
        for (foreign, expected) in [
            (ForeignAbi::Killed, SECCOMP_RET_KILL_PROCESS),
            (ForeignAbi::Allowed, SECCOMP_RET_ALLOW),
        ] {
            let (answer, _) = run(&compile(&rules, foreign), 0x4000_0003, 0, [0; 6]);
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn no_walk_is_long() {
        let rules = (0..400).step_by(2).map(|number| (number, Rule::Always)).collect();
        let program = compile(&rules, ForeignAbi::Killed);
        let longest = (0..500).map(|number| run(&program, OURS, number, [0; 6]).1).max();
        assert!(longest.is_some_and(|steps| steps < 20), "{longest:?}");
    }
}
