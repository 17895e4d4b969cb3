//! What an attack is.

use container::Defence;

/// Who attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A function's handler, forked from an honest zygote. `attack(turn, told)` gets what `victim(turn)` has just returned
    /// in a sibling.
    Handler,
    /// The same, in an interpreter that no zygote forked.
    Fresh,
    /// The same, from a zygote that has imported a careless package: the text before `# ---`.
    Careless,
    /// The same, and the victim is gone before the attacker comes: it may get what the victim had.
    Heir,
    /// A package in a zygote, at a fork: `attack(fds, uid, flags)` with the slot's descriptors.
    Package,
    /// The same, where roots hang in the warden's mount table.
    BoundPackage,
    /// A package in a zygote that lets something else land: the attack succeeds when the worker believes it.
    Landing,
    /// The same, where a further zygote is asked for.
    Deriving,
    /// The second fork of such a zygote: the first one lands honestly.
    SecondLanding,
    /// A bundle whose layer is a link to a directory of the host.
    Bundle,
    /// A handler that may connect to a list of places, from a zygote of its class.
    Reaching,
    /// As [`Who::Package`], where the zygote's forks may connect to something.
    ReachingPackage,
    /// As [`Who::Landing`], where the zygote's forks may connect to something.
    ReachingLanding,
}

/// As which process an attack is carried out, where that makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As the interpreter is.
    AsItIs,
    /// Once the interpreter has made itself dumpable (`PR_SET_DUMPABLE`): its files of `/proc` are then its own user's.
    Dumpable,
    /// As a program that the interpreter executes: those are dumpable.
    Executed,
}

impl Way {
    /// Its name in an event.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "as it is",
            Self::Dumpable => "dumpable",
            Self::Executed => "executed",
        }
    }
}

/// One attack, real code that tries and is expected to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    /// What it is after.
    pub(crate) name: &'static str,
    /// How it goes about it: with the defence, the pair that is counted.
    pub(crate) mechanism: &'static str,
    /// Who attacks.
    pub(crate) who: Who,
    /// Without exactly these it succeeds. One: a pair. Several: only together, and it is not counted. None: no set of missing
    /// defences lets it through, and what it does is shown on the host itself.
    pub(crate) without: &'static [Defence],
    /// What it meets when everything is in force.
    pub(crate) contained: &'static [&'static str],
    /// Turns of victim and attacker.
    pub(crate) turns: u32,
    /// It goes through `/proc`, which sandboxes lack where mounts cannot come late.
    pub(crate) through_proc: bool,
    /// What it is after is withheld from each process of the sandbox, however that was made: it is carried out in each [`Way`].
    pub(crate) in_each_way: bool,
    /// This time.
    pub(crate) way: Way,
    /// It goes through a Unix socket of its own or of a neighbour's: sandboxes have none where there are no Landlock scopes.
    pub(crate) through_sockets: bool,
    /// Where the kernel has no Landlock scopes the filter stands in for them, or one line less: its second run says nothing.
    pub(crate) by_scopes: bool,
    /// What it may meet on a host that refuses it by itself, whatever we do: then it counts for nothing. The host is asked.
    pub(crate) refused_by_host: &'static [&'static str],
    /// Python.
    pub(crate) source: &'static str,
}

impl Attack {
    pub(crate) const fn new(
        who: Who,
        name: &'static str,
        mechanism: &'static str,
        without: &'static [Defence],
        contained: &'static [&'static str],
        source: &'static str,
    ) -> Self {
        Self {
            name,
            mechanism,
            who,
            without,
            contained,
            turns: 1,
            through_proc: false,
            in_each_way: false,
            way: Way::AsItIs,
            through_sockets: false,
            by_scopes: false,
            refused_by_host: &[],
            source,
        }
    }

    pub(crate) const fn turns(self, turns: u32) -> Self {
        Self { turns, ..self }
    }

    pub(crate) const fn through_proc(self) -> Self {
        Self { through_proc: true, in_each_way: true, ..self }
    }

    /// As [`Attack::through_proc`], for what is withheld from other processes of the same sandbox only.
    pub(crate) const fn through_proc_of_another(self) -> Self {
        Self { through_proc: true, ..self }
    }

    pub(crate) const fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    pub(crate) const fn through_sockets(self) -> Self {
        Self { through_sockets: true, ..self }
    }

    pub(crate) const fn by_scopes(self) -> Self {
        Self { by_scopes: true, ..self }
    }

    pub(crate) const fn refused_by_host(self, refused_by_host: &'static [&'static str]) -> Self {
        Self { refused_by_host, ..self }
    }

    /// The defence that alone stops it.
    pub(crate) fn pair(&self) -> Option<Defence> {
        if let [one] = self.without { Some(*one) } else { None }
    }
}

/// How one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was stopped, and this is what it met.
    Contained(String),
    /// It succeeded, and this is what it has.
    Succeeded(String),
}

impl Outcome {
    /// From what Python answers.
    pub(crate) fn of(said: &serde_json::Value) -> Self {
        match (said["got"].as_str(), said.as_str()) {
            (Some(evidence), _) => Self::Succeeded(evidence.to_owned()),
            (None, Some(met)) => Self::Contained(met.to_owned()),
            (None, None) => Self::Contained(said.to_string()),
        }
    }
}
