// rslock. See tests/interop/README for the form of a driver.
use rslock::{Lock, LockManager};
use std::fs::{self, OpenOptions};
use std::io::stdin;
use std::process::exit;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

const PAUSE: Duration = Duration::from_millis(50);

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

async fn acquire(manager: &LockManager, key: &str, lease: Duration, longest: Duration) -> Option<Lock> {
    let begun = Instant::now();
    loop {
        if let Ok(lock) = manager.lock(key, lease).await {
            return Some(lock);
        }
        if begun.elapsed() >= longest {
            return None;
        }
        sleep(PAUSE).await;
    }
}

async fn section(inside: &str) {
    if OpenOptions::new().write(true).create_new(true).open(inside).is_err() {
        println!("overlap");
        return;
    }
    sleep(Duration::from_millis(2)).await;
    let _ = fs::remove_file(inside);
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words[0] == "version" {
        println!("{}", env!("RSLOCK_VERSION"));
        return;
    }
    let (verb, key) = (words[0].as_str(), words[2].as_str());
    let lease = Duration::from_millis(words[3].parse().unwrap());
    let mut manager = LockManager::new(words[1].split(',').collect());
    manager.set_retry(1, Duration::ZERO);
    match verb {
        "try" => match acquire(&manager, key, lease, Duration::ZERO).await {
            Some(lock) => manager.unlock(&lock).await,
            None => exit(75),
        },
        "hold" => {
            let Some(lock) = acquire(&manager, key, lease, Duration::from_secs(60)).await else {
                exit(75);
            };
            println!("held {}", seconds());
            let _ = stdin().read_line(&mut String::new());
            let before = seconds();
            // It does not say whether the lock was still its own.
            manager.unlock(&lock).await;
            println!("released {before}");
        }
        _ => {
            let end = seconds() + words[4].parse::<f64>().unwrap();
            let mut count = 0;
            while seconds() < end {
                let Some(lock) = acquire(&manager, key, lease, Duration::from_secs(5)).await else {
                    continue;
                };
                section(&words[5]).await;
                manager.unlock(&lock).await;
                count += 1;
                sleep(Duration::from_millis(5)).await;
            }
            println!("sections {count}");
        }
    }
}
