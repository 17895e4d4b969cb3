//! Frames of guest and worker: the same ones come out however the stream is cut, and what is understood can be said again.

use sandbox::wire::{Decoder, Frame, FrameError, MAX_HEADER_BYTES, Reply, Request};

const BODY_LIMIT: usize = 4096;

/// The first byte says how long the pieces are that the rest arrives in.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    let (whole, how) = decode(stream, stream.len().max(1));
    let (cut, also) = decode(stream, usize::from(*step) + 1);
    assert_eq!((&whole, &how), (&cut, &also), "cut into pieces of {step}");
    for frame in whole {
        assert!(frame.header.len() <= MAX_HEADER_BYTES && frame.body.len() <= BODY_LIMIT);
        if let Ok((request, body)) = Request::decode(frame.clone()) {
            let mut said = Vec::new();
            request.encode(&body, &mut said).expect("what came in a frame fits into one");
            let (frames, _) = decode(&said, said.len());
            let again = frames.into_iter().next().map(Request::decode);
            let (again, same) = again.expect("a frame").expect("a request");
            assert_eq!((again, same), (request, body));
        }
        if let Ok((reply, body)) = Reply::decode(frame) {
            let mut said = Vec::new();
            reply.encode(&body, &mut said).expect("what came in a frame fits into one");
            let (frames, _) = decode(&said, said.len());
            let again = frames.into_iter().next().map(Reply::decode);
            let (again, same) = again.expect("a frame").expect("a reply");
            assert_eq!((again, same), (reply, body));
        }
    }
}

fn decode(stream: &[u8], step: usize) -> (Vec<Frame>, Result<usize, FrameError>) {
    let mut decoder = Decoder::new(BODY_LIMIT);
    let mut frames = Vec::new();
    for piece in stream.chunks(step) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    assert!(decoder.pending() <= stream.len());
    (frames, Ok(decoder.pending()))
}
