//! After neighbours, through what the kernel shares between processes: memory, messages, keys, news of files.

use container::Defence;

use crate::attack::{Attack, Who};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "read a neighbour's memory of System V",
        "shmget, shmat",
        &[Defence::FilterSysv],
        &["ENOSYS"],
        "
def attach(flags):
    id, error = raw('shmget', 0x5741, 4096, flags)
    if error:
        raise OSError(getattr(errno, error), error)
    return raw('shmat', id, None, 0)[0]

def victim(turn):
    return trying(lambda: ctypes.memmove(attach(0o1666), b'of a neighbour', 14))

def attack(turn, told):
    return attempted(lambda: ctypes.string_at(attach(0o666), 14).decode())
",
    ),
    Attack::new(
        Who::Handler,
        "read a neighbour's messages of System V",
        "msgget, msgrcv",
        &[Defence::FilterSysv],
        &["ENOSYS"],
        "
def victim(turn):
    message = ctypes.create_string_buffer(struct.pack('q', 1) + b'of a neighbour')
    return raw('msgsnd', raw('msgget', 0x5741, 0o1666)[0], message, 14, 0)

def attack(turn, told):
    message = ctypes.create_string_buffer(22)
    _, error = raw('msgrcv', raw('msgget', 0x5741, 0o666)[0], message, 14, 0, 0o4000)
    return error or got(message.raw[8:].decode())
",
    ),
    Attack::new(
        Who::Handler,
        "read a neighbour's semaphores of System V",
        "semget, semctl",
        &[Defence::FilterSysv],
        &["ENOSYS"],
        "
def victim(turn):
    return raw('semctl', raw('semget', 0x5741, 1, 0o1666)[0], 0, 16, 7)

def attack(turn, told):
    return taken(raw('semctl', raw('semget', 0x5741, 1, 0o666)[0], 0, 12, 0))
",
    ),
    Attack::new(
        Who::Heir,
        "read what a dead neighbour left to its uid",
        "shmget, shmat",
        &[Defence::FilterSysv, Defence::OwnUid],
        &["ENOSYS"],
        "
def attach(flags):
    id, error = raw('shmget', 0x4845, 4096, flags)
    if error:
        raise OSError(getattr(errno, error), error)
    return raw('shmat', id, None, 0)[0]

def victim(turn):
    return trying(lambda: ctypes.memmove(attach(0o1600), b'of the dead', 11))

def attack(turn, told):
    return attempted(lambda: ctypes.string_at(attach(0o600), 11).decode())
",
    ),
    Attack::new(
        Who::Handler,
        "read the host's memory of System V",
        "shmget, shmat",
        &[Defence::FilterSysv, Defence::IpcNamespace],
        &["ENOSYS"],
        "
def attack(turn, told):
    id, error = raw('shmget', HOST['segment'], 64, 0o666)
    return error or got(ctypes.string_at(raw('shmat', id, None, 0)[0], 6).decode())
",
    ),
    Attack::new(
        Who::Handler,
        "read a neighbour's POSIX messages",
        "mq_open, mq_timedreceive",
        &[Defence::FilterQueues],
        &["ENOSYS"],
        "
def victim(turn):
    os.umask(0)
    queue, error = raw('mq_open', text('neighbour'), 0o102, 0o666, None)
    return error or raw('mq_timedsend', queue, text('of a neighbour'), 14, 0, None)

def attack(turn, told):
    queue, error = raw('mq_open', text('neighbour'), 0o4000, 0, None)
    message = ctypes.create_string_buffer(8192)
    if not error:
        _, error = raw('mq_timedreceive', queue, message, 8192, None, None)
    return error or got(message.value.decode())
",
    ),
    Attack::new(
        Who::Handler,
        "read a neighbour's key",
        "add_key, keyctl on the inherited session ring",
        &[Defence::FilterKeys],
        &["ENOSYS"],
        "
def victim(turn):
    return raw('add_key', text('user'), text('secret'), text('of a neighbour'), 14, -3)

def attack(turn, told):
    key, error = raw('keyctl', 10, -3, text('user'), text('secret'), 0)
    secret = ctypes.create_string_buffer(64)
    if not error:
        _, error = raw('keyctl', 11, key, secret, 64, 0)
    return error or got(secret.value.decode())
",
    ),
    Attack::new(
        Who::Handler,
        "watch which files a neighbour opens",
        "inotify",
        &[Defence::FilterNotify],
        &["ENOSYS"],
        "
def victim(turn):
    if turn == 1:
        open('/usr/bin/python3', 'rb').close()

def attack(turn, told):
    if turn == 1:
        return KEPT[1] if KEPT[1] != 'OK' else attempted(lambda: f'{len(os.read(KEPT[0], 4096))} bytes of events')
    KEPT.append(raw('inotify_init1', os.O_NONBLOCK)[0])
    KEPT.append(raw('inotify_add_watch', KEPT[0], text('/usr/bin/python3'), 0x20)[1] or 'OK')
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "watch which files a neighbour reads",
        "fcntl(F_NOTIFY)",
        &[Defence::FilterNotify],
        &["ENOSYS"],
        "
def victim(turn):
    if turn == 1:
        open('/opt/python/open.txt', 'rb').read()

def attack(turn, told):
    if turn == 1:
        return KEPT[1] if KEPT[1] != 'OK' else got('a signal') if signal.SIGIO in signal.sigpending() else 'no signal'
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    KEPT.append(os.open('/opt/python', os.O_RDONLY))
    KEPT.append(trying(lambda: fcntl.fcntl(KEPT[0], fcntl.F_NOTIFY, 0x80000001 - (1 << 32))))
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "watch which files a neighbour opens, by their handles",
        "fanotify",
        &[Defence::FilterNotify],
        &["ENOSYS"],
        "
def victim(turn):
    if turn == 1:
        open('/opt/python/open.txt', 'rb').close()

def attack(turn, told):
    if turn == 1:
        return KEPT[1] if KEPT[1] != 'OK' else attempted(lambda: f'{len(os.read(KEPT[0], 4096))} bytes of events')
    watch, error = raw('fanotify_init', 0x202, 0)
    KEPT.append(watch)
    KEPT.append(error or raw('fanotify_mark', watch, 1, 0x20, -100, text('/opt/python/open.txt'))[1] or 'OK')
",
    )
    .turns(2),
];
