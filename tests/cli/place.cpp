#include "cli/place.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

Place::Place(Engine engine)
    : engine_(engine), server_(is_local() ? nullptr : std::make_unique<RedisServer>()) {}

std::string Place::url() const { return is_local() ? "local:" + locks_.path() : server_->url(); }

ProcessOptions Place::with_server(ProcessOptions options) const {
  options.env.emplace("DLOCK_SERVER", url());
  return options;
}

Result Place::dlock(const std::vector<std::string>& arguments, ProcessOptions options) const {
  return start(arguments, std::move(options)).wait();
}

Process Place::start(const std::vector<std::string>& arguments, ProcessOptions options) const {
  return start_dlock(arguments, with_server(std::move(options)));
}

Result Place::shell(const std::string& script, ProcessOptions options) const {
  return start_shell(script, std::move(options)).wait();
}

Process Place::start_shell(const std::string& script, ProcessOptions options) const {
  options.env.emplace("D", dlock_path());
  if (options.cwd.empty()) options.cwd = dir_.path();
  return Process({"sh", "-c", script}, clean(with_server(std::move(options))));
}

Process Place::begun_shell(const std::string& script) const {
  return patient_start([&] { return start_shell(script); }, says_in, "the script did not begin");
}

Process Place::hold(const std::string& key, const std::vector<std::string>& options) const {
  const auto arguments = joined(joined(joined({"run", "-k", key}, options), {"--"}), staying());
  return patient_start([&] { return start(arguments); }, says_in, "the command did not start");
}

std::string Place::acquired(const std::string& key, const std::vector<std::string>& options) const {
  const auto result = dlock(joined({"acquire", "-k", key, "-t", "1m"}, options));
  if (result.exit_code != 0) throw Error(ErrorKind::bug, "not acquired: " + result.err);
  return result.out.substr(0, result.out.find('\n'));
}

nlohmann::ordered_json Place::state(const std::string& key) const {
  const auto result = dlock({"inspect", "-k", key, "--json"});
  if (result.exit_code != 0) throw Error(ErrorKind::bug, "inspect: " + result.err);
  return nlohmann::ordered_json::parse(result.out);
}

std::size_t Place::waiters(const std::string& key) const {
  const std::size_t queued = state(key)["waiters"].size();
  if (is_local()) return queued;
  // A waiter after its first request does not listen yet.
  const Reply heard_on = server_->command({"PUBSUB", "CHANNELS", "*{" + key + "}:*"});
  return std::min(queued, heard_on.items.size());
}

void on_each_engine(const std::function<void(const Place&)>& test) {
  for (const Engine engine : {Engine::local, Engine::redis}) {
    const Place place(engine);
    const std::string& url = place.url();
    CAPTURE(url);
    test(place);
  }
}

std::vector<std::string> staying() { return {"sh", "-c", "echo in; exec sleep 60"}; }

std::vector<std::string> names(const nlohmann::ordered_json& object) {
  std::vector<std::string> all;
  for (const auto& [name, value] : object.items()) all.push_back(name);
  return all;
}

std::vector<pid_t> keepers_of(pid_t pid) {
  const std::string mark = std::string("\0--attach\0", 10) + std::to_string(pid) + '\0';
  std::vector<pid_t> keepers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::stringstream line;
    line << file.rdbuf();
    // An emulator stands before it.
    const bool is_dlock = line.str().find(dlock_path() + '\0') != std::string::npos;
    const auto keeper = static_cast<pid_t>(std::stol(name));
    if (is_dlock && line.str().find(mark) != std::string::npos && is_alive(keeper)) {
      keepers.push_back(keeper);
    }
  }
  return keepers;
}

bool keepers_leave(pid_t pid) {
  return eventually([&] { return keepers_of(pid).empty(); });
}

bool is_renewed_twice(const Place& place, const std::string& key) {
  return grows_twice([&]() -> std::optional<long long> {
    const auto holders = place.state(key)["holders"];
    if (holders.empty()) return std::nullopt;
    return holders[0]["lease_left_ms"].get<long long>();
  });
}

Process attached(const Place& place, const std::string& options, const std::string& then,
                 const std::string& first) {
  const std::string script = first + "\nT=$(\"$D\" acquire " + options +
                             " --attach $$) || exit\nexport T\necho in\n" + then;
  return patient_start([&] { return place.start_shell(script); },
                       [](const Process& shell) { return shell.out().starts_with("in\n"); },
                       "not acquired");
}

bool end_script(Process& script) {
  script.kill_hard();
  return keepers_leave(script.pid());
}

}  // namespace dlock::test
