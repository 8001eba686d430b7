// A dlock without locks, for the tests of src/supervise: supervised [NAME=VALUE ...] -- COMMAND.
//   lease=MS      no process may run MS after the start  renewals=N   N renewals, every lease/3
//   lost=FILE     reports a loss when FILE exists        keep=1       the child then runs on
//   grace=MS  stop=SIGNUMBER  max-hold=MS  hide=FD  env=NAME=VALUE
//   wait-tree=1   waits for the end of all descendants
//   gate=FILE     writes a line to FILE, slowly, before the command begins
//   start-before=MS   does not begin the command later than that; waits=MS   delays its start
//   stops-with=FILE   a job stops when FILE exists
// Its last line on stderr reports how it ended; its exit code is dlock's.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "supervise/supervise.hpp"

using namespace dlock;

namespace {

class Lease : public StopSource {
 public:
  Lease(Deadline safe_until, std::string lost_file)
      : safe_until_(safe_until), lost_file_(lost_file) {}

  int fd() const override { return told_.fd(); }
  News look() override { return News::lost; }
  Deadline safe_until() const override { return safe_until_; }

  void keep(milliseconds lease, int renewals) {
    for (int i = 0; i < renewals; ++i) {
      std::this_thread::sleep_for(lease / 3);
      safe_until_ = later(BootClock::now(), lease);
    }
    while (!lost_file_.empty() && access(lost_file_.c_str(), F_OK) != 0) usleep(1000);
    if (!lost_file_.empty()) told_.raise();
  }

 private:
  std::atomic<Deadline> safe_until_;
  std::string lost_file_;
  Event told_;
};

using Options = std::map<std::string, std::string>;

milliseconds duration(const Options& options, const std::string& name) {
  const auto found = options.find(name);
  return milliseconds(found == options.end() ? 0 : std::stol(found->second));
}

void slowly_write(const std::string& file) {
  usleep(50'000);
  std::ofstream(file) << "recorded\n";
}

const char* outcome_of(const Ending& ending) {
  if (ending.why == Ending::Reason::lost) return "lost";
  if (ending.why == Ending::Reason::max_hold) return "max-hold";
  if (ending.child.exec_error) return "not-started";
  return ending.child.signal ? "signalled" : "exited";
}

void report(const Ending& ending, Deadline safe_until) {
  std::fprintf(stderr, "%s code=%d signal=%d error=%d noticed=%d survivors=%zu in-time=%d\n",
               outcome_of(ending), ending.child.exit_code.value_or(-1),
               ending.child.signal.value_or(0), ending.child.exec_error.value_or(0),
               ending.loss_noticed ? 1 : 0, ending.survivors.size(),
               BootClock::now() <= safe_until ? 1 : 0);
}

int leave(const Ending& ending) {
  if (ending.why == Ending::Reason::lost) return 79;
  if (ending.why == Ending::Reason::max_hold) return 124;
  if (ending.child.exec_error) return *ending.child.exec_error == ENOENT ? 127 : 126;
  if (ending.child.signal) die_of(*ending.child.signal);
  return *ending.child.exit_code;
}

int supervised(const Options& options, Program program) {
  Signals signals;
  const auto text = [&](const std::string& name) {
    return options.contains(name) ? options.at(name) : std::string();
  };
  if (options.contains("hide")) program.hidden_fd = std::stoi(text("hide"));
  if (const auto env = text("env"); !env.empty()) {
    program.environment.emplace_back(env.substr(0, env.find('=')), env.substr(env.find('=') + 1));
  }
  const auto ttl = duration(options, "lease");
  Lease lease(ttl.count() > 0 ? later(BootClock::now(), ttl) : never, text("lost"));
  SuperviseOptions rules;
  rules.grace = duration(options, "grace");
  rules.kill_cost = kill_cost(ttl);
  if (options.contains("stop")) rules.stop_signal = std::stoi(text("stop"));
  if (options.contains("max-hold")) rules.max_hold = duration(options, "max-hold");
  rules.loss = &lease;
  rules.keep_running_on_loss = options.contains("keep");
  rules.wait_tree = options.contains("wait-tree");
  rules.on_loss = [] { std::fputs("loss\n", stderr); };
  rules.before_stop = [&] {
    std::fputs("stopping\n", stderr);
    const auto file = text("stops-with");
    while (!file.empty() && access(file.c_str(), F_OK) != 0) usleep(1000);
  };

  std::function<void()> gate;
  if (options.contains("gate")) gate = [&] { slowly_write(text("gate")); };
  if (options.contains("start-before")) {
    program.start_before = later(BootClock::now(), duration(options, "start-before"));
  }
  std::this_thread::sleep_for(duration(options, "waits"));
  Child child(program, signals, gate);
  std::thread([&] {
    lease.keep(ttl, static_cast<int>(duration(options, "renewals").count()));
  }).detach();
  const auto ending = supervise(child, signals, rules);
  report(ending, lease.safe_until());
  std::fflush(nullptr);
  _exit(leave(ending));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int at = 1;
  for (; at < argc && argv[at] != std::string("--"); ++at) {
    const std::string option = argv[at];
    options[option.substr(0, option.find('='))] = option.substr(option.find('=') + 1);
  }
  try {
    return supervised(options, {{argv + at + 1, argv + argc}, {}, -1});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 71;
  }
}
