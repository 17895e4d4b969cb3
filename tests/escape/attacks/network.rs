//! After the network: the host's, and what is shared where there is none.

use container::Defence;

use crate::attack::{Attack, Who};

/// Goes where an honest child would be, and calls `use` there.
macro_rules! own_network {
    () => {
        "
def enter(fds, uid):
    become(fds, uid)
    said = attempt('unshare', CLONE_NEWPID | CLONE_NEWCGROUP | CLONE_NEWNET)
    if said != 'OK':
        return f'no network: {said}'
    try:
        return use()
    except OSError as error:
        return errno.errorcode[error.errno]

def attack(fds, uid, flags):
    return child(lambda: enter(fds, uid))
"
    };
}

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "talk to a service of the host",
        "UDP to 127.0.0.1",
        &[Defence::NetworkNamespace],
        &["ENETUNREACH"],
        "
def attack(turn, told):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.settimeout(5)
    return attempted(lambda: (end.sendto(b'hello', ('127.0.0.1', HOST['udp'])), end.recv(64).decode())[1])
",
    ),
    Attack::new(
        Who::Handler,
        "know the host's interfaces",
        "NETLINK_ROUTE",
        &[Defence::NetworkNamespace],
        &["loopback alone"],
        "
def attack(turn, told):
    names = [name for _, name in socket.if_nameindex() if name != 'lo']
    return got(names[0]) if names else 'loopback alone'
",
    )
    .refused_by_host(&["loopback alone"]),
    Attack::new(
        Who::Handler,
        "reach the control API",
        "TCP to 127.0.0.1",
        &[Defence::NetworkNamespace, Defence::LandlockNetwork],
        &["EACCES", "ENETUNREACH"],
        "
def attack(turn, told):
    return attempted(lambda: socket.create_connection(('127.0.0.1', HOST['tcp']), 5).recv(64).decode())
",
    ),
    Attack::new(
        Who::Handler,
        "reach the control API's socket",
        "connect to its path",
        &[],
        &["ENOENT"],
        "
def attack(turn, told):
    return attempted(lambda: (socket.socket(socket.AF_UNIX).connect(HOST['socket']), 'connected')[1])
",
    )
    .through_sockets(),
    Attack::new(
        Who::Handler,
        "talk to a service of the host by an abstract name",
        "connect to an abstract socket",
        &[Defence::NetworkNamespace, Defence::LandlockScopes],
        &["EPERM", "ECONNREFUSED", "ENOSYS"],
        "
def attack(turn, told):
    return attempted(lambda: (socket.socket(socket.AF_UNIX).connect('\\0' + HOST['abstract']), 'connected')[1])
",
    )
    .by_scopes(),
    Attack::new(
        Who::Reaching,
        "connect to a service of the host that it lists itself",
        "TCP to a listed address",
        &[Defence::EgressRules],
        &["ECONNRESET"],
        "
def attack(turn, told):
    return attempted(lambda: socket.create_connection(('127.0.0.1', HOST['tcp']), 30).recv(64).decode())
",
    ),
    Attack::new(
        Who::Reaching,
        "connect to a place that others may list",
        "TCP to another address at a listed port",
        &[Defence::EgressList],
        &["ECONNRESET"],
        "
def attack(turn, told):
    return attempted(lambda: socket.create_connection(tuple(HOST['elsewhere']), 30).recv(64).decode())
",
    ),
    Attack::new(
        Who::Reaching,
        "change what its own network is",
        "ioctl(SIOCSIFFLAGS) on its loopback",
        &[Defence::Capabilities],
        &["EPERM"],
        "
def attack(turn, told):
    down = struct.pack('16sH14x', b'lo', 0)
    return attempted(lambda: (fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, down), 'down')[1])
",
    ),
    Attack::new(
        Who::ReachingPackage,
        "configure a network of its own",
        "NETLINK_ROUTE in a slot's user namespace",
        &[Defence::FilterNetworkAdmin],
        &["ENOSYS"],
        concat!(
            own_network!(),
            "
def use():
    route = socket.socket(16, socket.SOCK_RAW, 0)
    # RTM_NEWADDR, with an answer: 192.0.2.7 for the first device, which is loopback.
    address = struct.pack('BBBBI', 2, 32, 0, 0, 1) + struct.pack('HH4B', 8, 2, 192, 0, 2, 7)
    route.send(struct.pack('IHHII', 16 + len(address), 20, 0x405, 1, 0) + address)
    said = struct.unpack_from('i', route.recv(4096), 16)[0]
    return got('an address of its choice') if said == 0 else errno.errorcode[-said]
"
        ),
    ),
    Attack::new(
        Who::ReachingPackage,
        "set the policy of IPsec in a network of its own",
        "setsockopt(IP_XFRM_POLICY) in a slot's user namespace",
        &[Defence::FilterNetworkAdmin],
        &["ENOSYS"],
        concat!(
            own_network!(),
            "
def use():
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.IPPROTO_IP, 17, None, 0)
    return got('no policy')
"
        ),
    )
    .refused_by_host(&["ENOPROTOOPT"]),
    Attack::new(
        Who::ReachingPackage,
        "change a device of a network of its own",
        "ioctl(SIOCETHTOOL) in a slot's user namespace",
        &[Defence::FilterNetworkAdmin],
        &["ENOTTY"],
        concat!(
            own_network!(),
            "
def use():
    # ETHTOOL_SGRO: received packets are joined no more.
    value = ctypes.create_string_buffer(struct.pack('II', 0x2c, 0))
    request = struct.pack('16sQ16x', b'lo', ctypes.addressof(value))
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
    return got('another device')
"
        ),
    ),
    Attack::new(
        Who::ReachingLanding,
        "have everybody's network filled for it",
        "READY by a process in no network of its own",
        // The filter lets such a zygote make a PID namespace with a network only.
        &[Defence::CheckPidNamespace, Defence::CheckNetwork, Defence::LoopbackDown],
        &["impostor"],
        "
def attack(fds, uid, flags):
    landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(2)), new_pid=False)
",
    ),
    Attack::new(
        Who::Handler,
        "talk to a neighbour over loopback",
        "UDP over IPv4",
        &[Defence::LoopbackDown],
        &["ENETUNREACH"],
        "
def victim(turn):
    if turn == 1:
        return trying(lambda: KEPT.append(KEPT[0].recv(64, socket.MSG_DONTWAIT).decode())) == 'OK' and KEPT[1]
    KEPT.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    KEPT[0].bind(('', 0))
    return KEPT[0].getsockname()[1]

def attack(turn, told):
    if turn == 1:
        return HOST['said'] if HOST['said'] != 'OK' else got(told)
    HOST['said'] = trying(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', told)))
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "talk to a neighbour over the other loopback",
        "UDP over IPv6",
        &[Defence::LoopbackDown],
        &["ENETUNREACH", "EADDRNOTAVAIL"],
        "
def victim(turn):
    if turn == 1:
        return trying(lambda: KEPT.append(KEPT[0].recv(64, socket.MSG_DONTWAIT).decode())) == 'OK' and KEPT[1]
    KEPT.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    KEPT[0].bind(('::', 0))
    return KEPT[0].getsockname()[1]

def attack(turn, told):
    if turn == 1:
        return HOST['said'] if HOST['said'] != 'OK' else got(told)
    HOST['said'] = trying(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'hello', ('::1', told)))
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "connect to a neighbour over loopback",
        "TCP to 127.0.0.1",
        &[Defence::LoopbackDown, Defence::LandlockNetwork],
        &["EACCES", "ENETUNREACH"],
        "
def victim(turn):
    KEPT.append(socket.socket())
    return trying(lambda: (KEPT[0].bind(('', 0)), KEPT[0].listen())) == 'OK' and KEPT[0].getsockname()[1]

def attack(turn, told):
    return attempted(lambda: (socket.create_connection(('127.0.0.1', told or 80), 5), 'connected')[1])
",
    ),
    Attack::new(
        Who::Handler,
        "connect to a neighbour by an abstract name",
        "connect to an abstract socket",
        &[Defence::LandlockScopes],
        &["EPERM", "ENOSYS"],
        "
def victim(turn):
    return abstract('neighbour', listen=True)

def attack(turn, told):
    return attempted(lambda: (socket.socket(socket.AF_UNIX).connect('\\0neighbour'), 'connected')[1])
",
    )
    .by_scopes(),
    Attack::new(
        Who::Handler,
        "send to a neighbour by an abstract name",
        "sendto to an abstract socket",
        &[Defence::LandlockScopes],
        &["EPERM", "ENOSYS"],
        "
def victim(turn):
    KEPT.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    KEPT[0].bind('\\0datagrams')

def attack(turn, told):
    return attempted(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'hello', '\\0datagrams'))
",
    )
    .through_sockets(),
    Attack::new(
        Who::Handler,
        "meet a neighbour where no network namespace holds",
        "AF_VSOCK",
        &[Defence::FilterSockets],
        &["ENOSYS"],
        "
def listening():
    end, error = raw('socket', 40, 1, 0)
    address = ctypes.create_string_buffer(struct.pack('HHIIB3x', 40, 0, 7777, 0xFFFFFFFF, 0))
    return error or raw('bind', end, address, 16)[1] or raw('listen', end, 1)[1] or 'OK'

def victim(turn):
    return listening()

def attack(turn, told):
    return told if told != 'OK' else got('the port is a neighbour\\'s') if listening() == 'EADDRINUSE' else 'no neighbour'
",
    ),
    Attack::new(
        Who::Handler,
        "have a protocol that no function needs",
        "IPPROTO_MPTCP",
        &[Defence::FilterSockets],
        &["ENOSYS"],
        "
def attack(turn, told):
    return taken(raw('socket', 2, 1, 262))
",
    )
    .refused_by_host(&["ENOPROTOOPT"]),
    Attack::new(
        Who::Handler,
        "hear what devices the host has",
        "NETLINK_KOBJECT_UEVENT",
        &[Defence::FilterSockets],
        &["ENOSYS"],
        "
def listen():
    KEPT.append(socket.socket(16, socket.SOCK_DGRAM, 15))
    KEPT[0].bind((0, 1))
    KEPT[0].settimeout(5)

def attack(turn, told):
    if turn == 0:
        HOST['said'] = trying(listen)
    elif HOST['said'] != 'OK':
        return HOST['said']
    else:
        return attempted(lambda: KEPT[0].recv(256).split(b'\\0')[0].decode())
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "list the sockets of the neighbours",
        "NETLINK_SOCK_DIAG",
        &[Defence::FilterSockets],
        &["ENOSYS"],
        "
def victim(turn):
    return abstract('listed neighbour', listen=True)

def ask():
    end = socket.socket(16, socket.SOCK_RAW, 4)
    end.settimeout(5)
    question = struct.pack('BBHIIIII', 1, 0, 0, 0xFFFFFFFF, 0, 1, 0, 0)
    end.send(struct.pack('IHHII', 16 + len(question), 20, 0x301, 1, 0) + question)
    while answer := end.recv(65536):
        if b'listed neighbour' in answer:
            return 'listed neighbour'
        if struct.unpack_from('H', answer, 4)[0] == 3:
            raise OSError(errno.ENOENT, 'not listed')

def attack(turn, told):
    return attempted(ask)
",
    )
    .refused_by_host(&["ENOENT"]),
    Attack::new(
        Who::Handler,
        "send to a neighbour through the kernel's own sockets",
        "NETLINK_USERSOCK",
        &[Defence::FilterSockets],
        &["ENOSYS"],
        "
def listen():
    KEPT.append(socket.socket(16, socket.SOCK_DGRAM, 2))
    KEPT[0].bind((4242, 0))

def victim(turn):
    return trying(listen) if turn == 0 else KEPT and KEPT[0].recv(64, socket.MSG_DONTWAIT).decode()

def attack(turn, told):
    if turn == 1:
        return HOST['said'] if HOST['said'] != 'OK' else got(told)
    HOST['said'] = trying(lambda: socket.socket(16, socket.SOCK_DGRAM, 2).sendto(b'hello', (4242, 0)))
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "know which groups a neighbour has joined",
        "RTM_GETMULTICAST",
        &[Defence::FilterMemberships],
        &["none"],
        "
GROUP = socket.inet_pton(socket.AF_INET6, 'ff15::4c57')

def join():
    KEPT.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    KEPT[-1].setsockopt(socket.IPPROTO_IPV6, 20, GROUP + struct.pack('I', 1))

def victim(turn):
    return trying(join)

def attack(turn, told):
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    # All of IPv6.
    kernel.send(struct.pack('IHHII', 24, 58, 0x301, 1, 0) + struct.pack('BBBBI', socket.AF_INET6, 0, 0, 0, 0))
    if told != 'OK':
        return told
    return got(socket.inet_ntop(socket.AF_INET6, GROUP)) if GROUP in kernel.recv(65536) else 'none'
",
    )
    // A kernel without IPv6.
    .refused_by_host(&["EAFNOSUPPORT", "none"]),
    Attack::new(
        Who::Handler,
        "know which label of flows a neighbour has taken",
        "setsockopt(IPV6_FLOWLABEL_MGR)",
        &[Defence::FilterMemberships],
        &["ENOSYS"],
        "
def take():
    # To ::1, the label 0x4c57, exclusively.
    wanted = socket.inet_pton(socket.AF_INET6, '::1') + struct.pack('>I', 0x4C57) + struct.pack('=BBHHHI', 0, 1, 3, 60, 60, 0)
    KEPT.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    KEPT[-1].setsockopt(socket.IPPROTO_IPV6, 32, wanted)

def victim(turn):
    return trying(take)

def attack(turn, told):
    said = trying(take)
    return got('taken') if told == 'OK' and said in ('EEXIST', 'EPERM') else said
",
    )
    .refused_by_host(&["EAFNOSUPPORT"]),
];
