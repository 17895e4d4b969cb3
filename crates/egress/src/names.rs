//! Names as a sandbox sees them: the proxy makes up an address for each.
//!
//! A lookup of a listed name that has an address outside is answered with one of [`FOR_NAMES`]. The
//! answer is NXDOMAIN for a name that is not listed, leads only to forbidden addresses, or does not
//! exist outside. It is SERVFAIL, so that the client asks again, where the host's resolver fails.
//! Lookups of other types than A have an empty answer, so that clients use IPv4; the proxy may
//! still reach the name by IPv6 outside.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};

use crate::addresses::FOR_NAMES;

/// Maximum number of names of one sandbox: a wildcard allows any number.
const MAX_NAMES: u32 = 4096;

/// Time to live of an answer, in seconds. The answer stays true for as long as the sandbox lives.
const TTL_SECONDS: u32 = 60;

/// Length limit of a query, in bytes (RFC 1035, 2.3.4; EDNS is not needed for such queries).
pub(crate) const MAX_QUERY: usize = 512;

/// Names that were given an address.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Arc<str>>,
    indexes: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The address of a name, made up for a new name. None when there are too many names.
    pub(crate) fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        let at = match self.indexes.get(name) {
            Some(at) => *at,
            None => {
                let at = u32::try_from(self.names.len()).ok().filter(|at| *at < MAX_NAMES)?;
                let name: Arc<str> = name.into();
                self.names.push(Arc::clone(&name));
                self.indexes.insert(name, at);
                at
            }
        };
        // The network's own address stays free.
        Some(Ipv4Addr::from(u32::from(FOR_NAMES.addr()) + 1 + at))
    }

    /// The name that has this address.
    pub(crate) fn name_at(&self, address: Ipv4Addr) -> Option<Arc<str>> {
        let at = u32::from(address).checked_sub(u32::from(FOR_NAMES.addr()) + 1)?;
        self.names.get(usize::try_from(at).ok()?).cloned()
    }
}

/// A received query.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    packet: Packet<'a>,
    /// The name in lower case, without a final dot.
    pub(crate) name: String,
    /// Whether it asks for an IPv4 address.
    pub(crate) address: bool,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// One IPv4 address.
    Address(Ipv4Addr),
    /// The name exists, without a record of this type.
    Nothing,
    /// The name does not exist.
    NoName,
    /// The lookup failed: the client may ask again.
    Failed,
}

impl<'a> Question<'a> {
    /// Decodes a query; none where the packet is no query, or has more than one question.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let packet = Packet::parse(bytes).ok()?;
        let [question] = &packet.questions[..] else { return None };
        if packet.has_flags(PacketFlag::RESPONSE) || question.qclass != QCLASS::CLASS(CLASS::IN) {
            return None;
        }
        let name = question.qname.to_string().to_ascii_lowercase();
        let address = question.qtype == QTYPE::TYPE(TYPE::A);
        Some(Self { packet, name, address })
    }

    /// Encodes the answer; none where it cannot be encoded.
    pub(crate) fn answer(self, said: Response) -> Option<Vec<u8>> {
        let recursion = self.packet.has_flags(PacketFlag::RECURSION_DESIRED);
        let mut reply = Packet::new_reply(self.packet.id());
        reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
        if recursion {
            reply.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        let question = self.packet.questions.into_iter().next()?;
        match said {
            Response::Address(address) => {
                let data = RData::A(A { address: address.into() });
                let name = question.qname.clone();
                reply.answers.push(ResourceRecord::new(name, CLASS::IN, TTL_SECONDS, data));
            }
            Response::Nothing => {}
            Response::NoName => *reply.rcode_mut() = RCODE::NameError,
            Response::Failed => *reply.rcode_mut() = RCODE::ServerFailure,
        }
        reply.questions.push(question);
        reply.build_bytes_vec().ok()
    }
}

#[cfg(test)]
mod tests {
    use simple_dns::{Name, Question as Asked};

    use super::*;

    fn ask(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        let name = Name::new_unchecked(name);
        packet.questions.push(Asked::new(name, kind.into(), CLASS::IN.into(), false));
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn a_name_keeps_its_address_and_an_address_its_name() {
        let mut names = Names::default();
        let first = names.address_of("a.example.com").unwrap();
        let second = names.address_of("b.example.com").unwrap();
        assert_ne!(first, second);
        assert_eq!(names.address_of("a.example.com"), Some(first));
        assert_eq!(names.name_at(second).as_deref(), Some("b.example.com"));
        for other in ["198.18.0.0", "198.18.0.3", "198.17.255.255", "0.0.0.0", "255.255.255.255"] {
            assert_eq!(names.name_at(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn names_without_end_end() {
        let mut names = Names::default();
        let given =
            (0..2 * MAX_NAMES).filter_map(|n| names.address_of(&format!("{n}.example.com")));
        let given: Vec<_> = given.collect();
        assert_eq!(given.len(), MAX_NAMES as usize);
        assert!(given.iter().all(|address| FOR_NAMES.contains(address)));
        assert!(names.address_of("1.example.com").is_some());
    }

    #[test]
    fn an_answer_repeats_its_question_and_says_one_thing() {
        let bytes = ask("API.example.com", TYPE::A);
        let question = Question::read(&bytes).unwrap();
        assert_eq!((question.name.as_str(), question.address), ("api.example.com", true));
        let answer = question.answer(Response::Address(Ipv4Addr::new(198, 18, 0, 1))).unwrap();
        let answer = Packet::parse(&answer).unwrap();
        assert_eq!((answer.id(), answer.rcode(), answer.questions.len()), (7, RCODE::NoError, 1));
        let expected = A { address: Ipv4Addr::new(198, 18, 0, 1).into() };
        assert_eq!(answer.answers[0].rdata, RData::A(expected));
        let bytes = ask("x.example.com", TYPE::AAAA);
        let question = Question::read(&bytes).unwrap();
        assert!(!question.address);
        let answer = question.answer(Response::NoName).unwrap();
        let answer = Packet::parse(&answer).unwrap();
        assert_eq!((answer.rcode(), answer.answers.len()), (RCODE::NameError, 0));
    }

    #[test]
    fn a_packet_that_is_no_query_gets_no_answer() {
        assert!(Question::read(b"").is_none() && Question::read(&[0xff; 64]).is_none());
        let reply = Packet::new_reply(1).build_bytes_vec().unwrap();
        assert!(Question::read(&reply).is_none());
    }
}
