#include "cli/place.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.hpp"
#include "support/files.hpp"
#include "support/patient_start.hpp"

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

}  // namespace dlock::test
