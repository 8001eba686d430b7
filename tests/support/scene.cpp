#include "support/scene.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace dlock::test {
std::string sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

Scene::Scene() { write_file(log(), ""); }

ProcessOptions Scene::options() const {
  ProcessOptions options{.env = {{"DLOCK_SERVER", url()},
                                 {"DLOCK", dlock_path()},
                                 {"STAMP", stamp_path()},
                                 {"LOG", log()}},
                         .cwd = work_.path()};
  options.env.merge(settings());
  return options;
}

Process Scene::start(const std::vector<std::string>& arguments) const {
  return start_dlock(arguments, options());
}

Result Scene::run(const std::vector<std::string>& arguments) const {
  return start(arguments).wait();
}

Process Scene::start_shell(const std::string& script) const {
  return Process({"sh", "-c", script}, clean(options()));
}

bool Scene::has(const std::string& name) const { return access(path(name).c_str(), F_OK) == 0; }

bool Scene::has_text(const std::string& name) const {
  return has(name) && !read_file(path(name)).empty();
}

std::int64_t Scene::number_in(const std::string& name) const {
  if (!eventually([&] { return has_text(name); })) {
    throw Error(ErrorKind::bug, "nothing was written to " + name);
  }
  return std::stoll(read_file(path(name)));
}

std::string Scene::inspect(const std::string& key) const {
  return run({"inspect", "--json", "-k", key}).out;
}

std::size_t Scene::waiting(const std::string& key) const {
  return times(inspect(key), "\"position\":");
}

bool Scene::is_held(const std::string& key) const {
  return times(inspect(key), "\"lease_left_ms\":") != 0;
}

Process Scene::hold(const std::string& key, const std::string& until,
                    const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments{"run", "-k", key};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const std::string script =
      "echo >holds-" + until + "; until [ -e " + until + " ]; do sleep 0.01; done";
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return patient_start([&] { return start(arguments); }, [&] { return has("holds-" + until); },
                       "did not come to hold " + key);
}

Process Scene::queue_up(const std::string& key, std::size_t count, const std::string& script,
                        const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments{"run", "-k", key};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(),
                   {"--", "sh", "-c", "i=" + std::to_string(count) + "; " + script});
  return patient_start(
      [&] { return start(arguments); },
      [&](const Process& process) { return waiting(key) == count && says_that_it_waits(process); },
      "did not queue up for " + key);
}

bool leaves_nothing(const Scene& scene, const std::vector<std::string>& keys) {
  const auto is_free = [&](const std::string& key) {
    return times(scene.inspect(key), "\"holders\":") == 1 && !scene.is_held(key) &&
           scene.waiting(key) == 0;
  };
  // Far less than a lease, so that an unreleased hold that expires does not pass as released.
  const auto at_most = std::min(milliseconds(10'000), scene.time_to_forget());
  if (!eventually([&] { return std::all_of(keys.begin(), keys.end(), is_free); }, at_most)) {
    return false;
  }
  const auto no_more_is_kept = [&] { return scene.kept() == scene.may_stay(keys); };
  const bool all_gone = eventually(no_more_is_kept, scene.time_to_forget());
  if (!all_gone) std::fprintf(stderr, "kept: %s\n", scene.kept().c_str());
  return all_gone;
}

std::string LocalScene::kept() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    names.push_back(entry.path().filename());
  }
  return sorted(std::move(names));
}

std::string LocalScene::may_stay(std::vector<std::string> keys) const {
  for (std::string& key : keys) key += ".dlock";
  return sorted(std::move(keys));
}

void LocalScene::make_older(std::chrono::seconds by) const {
  const timespec then{std::time(nullptr) - by.count(), 0};
  const timespec times[] = {then, then};
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    if (utimensat(AT_FDCWD, entry.path().c_str(), times, 0) != 0) throw_errno("utimensat");
  }
}

std::string RedisScene::kept() const {
  std::vector<std::string> names;
  for (const Reply& name : server.command({"KEYS", "*"}).items) names.push_back(name.text);
  return sorted(std::move(names));
}

void RedisScene::send_the_script() const {
  const Result run_once = run({"run", "-q", "-k", "warm", "--", "true"});
  if (run_once.exit_code != 0) throw Error(ErrorKind::bug, "no lock was taken: " + run_once.err);
  server.command({"DEL", "dlock:{warm}:fence"});
}

std::size_t RedisScene::waiting(const std::string& key) const {
  // A waiter after its first request does not listen yet.
  const Reply heard_on = server.command({"PUBSUB", "CHANNELS", "*{" + key + "}:*"});
  return std::min(Scene::waiting(key), heard_on.items.size());
}

std::string RedisScene::may_stay(std::vector<std::string> keys) const {
  for (std::string& key : keys) key = "dlock:{" + key + "}:fence";
  return sorted(std::move(keys));
}

std::chrono::nanoseconds wall_ahead() {
  while (true) {
    const auto before = BootClock::now();
    const std::chrono::nanoseconds wall = std::chrono::system_clock::now().time_since_epoch();
    if (BootClock::now() - before <= milliseconds(5)) return wall - before.time_since_epoch();
  }
}

std::optional<Deadline> lease_end_if_held(const RedisServer& server, const std::string& key) {
  const Reply holds = server.command({"HVALS", "dlock:{" + key + "}"});
  if (holds.items.size() != 1) return std::nullopt;
  std::istringstream fields(holds.items.front().text);
  std::string flag;
  long long floor_ms = 0;
  long long at_us = 0;
  long long since_us = 0;
  long long fence = 0;
  long long lease_ms = 0;
  fields >> flag >> floor_ms >> at_us >> since_us >> fence >> lease_ms;
  return Deadline(microseconds(at_us) + milliseconds(lease_ms) - wall_ahead());
}

Deadline lease_end(const RedisServer& server, const std::string& key) {
  const auto end = lease_end_if_held(server, key);
  if (!end) throw Error(ErrorKind::bug, "not one hold of " + key);
  return *end;
}

std::vector<long> order_of(const std::string& log) {
  std::vector<long> order;
  for (const QuorumHold& tenure : tenures(log)) order.push_back(tenure.pid);
  return order;
}

std::vector<long> first_numbers(long count) {
  std::vector<long> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string without_late_releases(const std::string& err) {
  std::istringstream lines(err);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    const bool is_late = line.starts_with("dlock: could not release ") &&
                         line.find(", which ends with its lease: ") != std::string::npos;
    if (!is_late) rest += line + "\n";
  }
  return rest;
}

}  // namespace dlock::test
