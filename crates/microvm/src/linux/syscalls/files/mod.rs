//! System calls about names, descriptors, their bytes, and sockets.

pub(crate) mod descriptors;
pub(crate) mod inet_sockets;
pub(crate) mod own_descriptors;
pub(crate) mod paths;
pub(crate) mod pipe_ends;
pub(crate) mod proc;
pub(crate) mod ready;
pub(crate) mod socket_pairs;
pub(crate) mod status;
pub(crate) mod transfer;
