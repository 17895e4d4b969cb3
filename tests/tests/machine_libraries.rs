//! Libraries in micro-VMs, as they are: those that start threads, and those that compute.

use e2e::{Site, Worker, can_run_machines, json};

fn in_machine(settings: &str, source: &str) -> String {
    format!(
        "# /// script\n{settings}# [tool.lambswool]\n# isolation = \"microvm\"\n# ///\n{source}"
    )
}

/// Pools, queues, events and timers, in ways that need every thread to have its turn.
const THREADS: &str = r#"
import queue, threading, time
from concurrent.futures import ThreadPoolExecutor, as_completed

def handler(event, context):
    with ThreadPoolExecutor(max_workers=6) as pool:
        squares = list(pool.map(lambda number: number * number, range(100)))
        late = [pool.submit(lambda naps: time.sleep(naps / 100) or naps, naps) for naps in (3, 1, 2)]
        order = sorted(future.result() for future in as_completed(late))
    asked, answers = queue.Queue(maxsize=2), queue.Queue()
    def work():
        while (item := asked.get()) is not None:
            answers.put(item * 2)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers: worker.start()
    for item in range(50): asked.put(item)
    for _ in workers: asked.put(None)
    for worker in workers: worker.join()
    doubled = sorted(answers.get_nowait() for _ in range(50))
    done, own = threading.Event(), threading.local()
    timer = threading.Timer(0.01, done.set)
    timer.start()
    own.value = 1
    lock = threading.Lock()
    with lock:
        taken = lock.acquire(timeout=0.01)
    return {'squares': sum(squares), 'order': order, 'doubled': doubled == [2 * item for item in range(50)],
            'event': done.wait(10), 'taken': taken, 'left': threading.active_count()}
"#;

#[test]
fn threads_pools_and_queues_work_in_a_machine_and_none_is_left() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("threads", &in_machine("", THREADS)).expect(201));
    for _ in 0..3 {
        let answer = worker.run("threads", &json!({})).expect(200).json();
        let expected = json!({
            "squares": 328_350, "order": [1, 2, 3], "doubled": true, "event": true, "taken": false, "left": 1
        });
        // A timer's thread may not have ended yet.
        assert!(answer["left"].as_u64().unwrap() <= 2, "{answer}");
        let mut answer = answer;
        answer["left"] = json!(1);
        assert_eq!(answer, expected);
    }
    worker.assert_well();
}

#[test]
fn threads_that_wait_for_each_other_or_never_end_harm_nobody_else() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let locks = "import threading\nfirst, second = threading.Lock(), threading.Lock()\n\
        def handler(event, context):\n    def other():\n        with second: here.set(); first.acquire()\n    \
        if not event.get('lock'): return 'well'\n    here = threading.Event(); first.acquire()\n    \
        threading.Thread(target=other).start(); here.wait(); second.acquire()\n";
    drop(worker.deploy("locks", &in_machine("", locks)).expect(201));
    let dead = worker.run("locks", &json!({"lock": true}));
    assert_eq!(dead.status, 502, "{}", dead.text());
    assert!(dead.error().contains("SIGABRT"), "{}", dead.error());
    assert_eq!(worker.run("locks", &json!({})).expect(200).json(), "well");
    let spins = "import threading\ndef spin():\n    while True: pass\ndef handler(event, context):\n    \
        if not event.get('spin'): return 'well'\n    thread = threading.Thread(target=spin); thread.start(); thread.join()\n";
    let source = in_machine("", spins)
        .replace("isolation = \"microvm\"", "isolation = \"microvm\"\n# timeout = \"500ms\"");
    drop(worker.deploy("spins", &source).expect(201));
    assert_eq!(worker.run("spins", &json!({"spin": true})).status, 504);
    assert_eq!(worker.run("spins", &json!({})).expect(200).json(), "well");
    worker.assert_well();
}

/// Deploys a function with libraries from the index; false where there is no way to it.
fn deploys(worker: &Worker, name: &str, dependencies: &str, source: &str) -> bool {
    let settings = format!("# dependencies = [{dependencies}]\n");
    worker.deploys_from_index(name, &in_machine(&settings, source))
}

#[test]
fn pandas_works_in_a_machine() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let source = "import io, os\nimport pandas\ndef handler(event, context):\n    \
        table = pandas.read_csv(io.StringIO(event['csv']), parse_dates=['day'])\n    \
        sums = table.groupby(table.day.dt.month)['value'].sum()\n    \
        path = '/tmp/table.csv'; table.to_csv(path, index=False)\n    \
        again = pandas.read_csv(path)\n    \
        return [os.uname().nodename, sums.to_dict(), len(again), float(table.value.rolling(2).mean().iloc[-1])]\n";
    if !deploys(&worker, "tables", "\"pandas==2.2.3\", \"numpy==2.2.6\"", source) {
        return;
    }
    let csv = "day,value\n2026-01-02,1\n2026-01-03,2\n2026-02-01,5\n";
    for _ in 0..2 {
        let answer = worker.run("tables", &json!({"csv": csv})).expect(200).json();
        assert_eq!(answer, json!(["microvm", {"1": 3, "2": 5}, 3, 3.5]));
    }
    worker.assert_well();
}

#[test]
fn pillow_works_in_a_machine() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let source = "import io, os\nfrom PIL import Image, ImageDraw, ImageFilter\ndef handler(event, context):\n    \
        image = Image.new('RGB', (400, 300), 'white')\n    \
        ImageDraw.Draw(image).ellipse((100, 50, 300, 250), fill=(200, 0, 0))\n    \
        small = image.resize((40, 30)).filter(ImageFilter.GaussianBlur(1))\n    \
        sizes = {}\n    for kind in ('PNG', 'JPEG', 'WEBP'):\n        \
        kept = io.BytesIO(); small.save(kept, kind)\n        \
        back = Image.open(io.BytesIO(kept.getvalue())).convert('RGB')\n        \
        sizes[kind] = [back.size, back.getpixel((20, 15))[0] > 180]\n    return [os.uname().nodename, sizes]\n";
    if !deploys(&worker, "images", "\"pillow==11.3.0\"", source) {
        return;
    }
    let each = json!([[40, 30], true]);
    for _ in 0..2 {
        let answer = worker.run("images", &json!({})).expect(200).json();
        assert_eq!(answer, json!(["microvm", {"PNG": each, "JPEG": each, "WEBP": each}]));
    }
    worker.assert_well();
}
