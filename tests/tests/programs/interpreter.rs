//! What programs expect of the interpreter and of the guest that runs them.

use e2e::{Everywhere, Way, json};

#[test]
fn one_event_loop_serves_all_calls_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("lock_of_a_module", &json!("event"), &json!([[1, 2], "event"]));
    for event in [json!(0), json!(1)] {
        ways.answers("own_selector", &event, &json!([true, 2]));
    }
    ways.try_in(&Way::ALL, "left_task", &json!(null), |way, call, reply| {
        let steps = reply.expect(200).json().as_u64().unwrap();
        let expected = if call == 0 || way == Way::Reset { 0 } else { 3 };
        assert_eq!(steps, expected, "{way:?}, call {call}");
    });
}

#[test]
fn a_functions_files_may_have_pythons_names_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    for (program, expected) in [("own_random", json!([4, 5, 6])), ("pythons_names", json!([]))] {
        ways.answers(program, &json!({}), &expected);
        ways.try_in(&Way::ALL, program, &json!("fail"), |way, call, reply| {
            let told = reply.json();
            assert_eq!(reply.status, 502, "{program}, {way:?}, call {call}: {told}");
            let error = &told["error"];
            assert_eq!((&error["type"], &error["message"]), (&json!("ValueError"), &json!("so")));
            let last = error["traceback"].as_array().unwrap().last().unwrap();
            assert_eq!(last, "ValueError: so", "{program}, {way:?}, call {call}: {told}");
        });
    }
}

#[test]
fn text_is_measured_and_sent_as_utf_8_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    let event = json!({"text": "中", "n": 1_100_000});
    ways.try_in(&Way::ALL, "long_text", &event, |way, _, reply| {
        assert_eq!(reply.status, 200, "{way:?}: {}", reply.text());
        assert_eq!(reply.body.len(), 3_300_002, "{way:?}");
        assert!(reply.json().as_str().unwrap().chars().all(|c| c == '中'), "{way:?}");
    });
    ways.answers_in(
        &[Way::Fork],
        "long_text",
        &json!({"text": "\u{1f411}\u{0}\"\\", "n": 1}),
        &json!("\u{1f411}\u{0}\"\\"),
    );
    // A refusal names what was counted and the setting.
    let event = json!({"text": "中", "n": 2_200_000});
    ways.try_in(&[Way::Fork], "long_text", &event, |_, _, reply| {
        assert_eq!(reply.status, 502);
        let told = reply.error();
        for part in ["6600002 bytes", "at most 6291456", "`reply_body`"] {
            assert!(told.contains(part), "{told}");
        }
    });
    let worker = ways.worker(Way::Fork);
    drop(worker.deploy("echo", "def handler(event, context): return event").expect(201));
    let long = format!("\"{}\"", "中".repeat(2_200_000));
    let refused = worker.post("/run/echo", "application/json", long.as_bytes());
    assert_eq!(refused.status, 413);
    for part in ["6600002 bytes", "6MiB", "`run_body`"] {
        assert!(refused.error().contains(part), "{}", refused.error());
    }
    let marked = worker.post("/run/echo", "application/json", b"\xef\xbb\xbf{\"a\": \"\xc3\xbc\"}");
    assert_eq!(marked.expect(200).body, "{\"a\": \"ü\"}".as_bytes());
    let half = worker.post("/run/echo", "application/json", br#"["\ud800", "\ud83d\udc11"]"#);
    assert_eq!(half.expect(200).body, "[\"\\ud800\", \"\u{1f411}\"]".as_bytes());
}

#[test]
fn what_site_and_lambda_give_a_program_is_there_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.try_in(&Way::ALL, "builtins_of_site", &json!({}), |way, _, reply| {
        let told = reply.expect(200).json();
        let all = told.as_object().unwrap();
        assert!(all.len() == 8 && all.values().all(|said| said == "ok"), "{way:?}: {told}");
    });
    ways.try_in(&Way::ALL, "root_logger", &json!({}), |way, call, reply| {
        assert_eq!(reply.expect(200).json(), json!([1, "WARNING", "INFO"]), "{way:?}");
        let name = format!("root-logger-{way:?}").to_lowercase();
        let log = ways.worker(way).logs(&name);
        let lines = log.iter().filter(|line| line.to_string().contains("fmt|hello")).count();
        assert_eq!(lines, call + 1, "{way:?}: {log:?}");
    });
    ways.answers("where_packages_are", &json!({}), &json!([[], true, true]));
    let lowered = json!("[(2, 2), 1048576, (64, 64)]");
    ways.answers_in(&Way::CONTAINERS, "limits_of_a_child", &json!({}), &lowered);
}
