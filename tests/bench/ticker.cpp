// Runs several commands in turns and measures each run: on a shared machine, times are comparable
// only side by side. ticker ROUNDS <commands reads one command a line, with tabs between its
// arguments. It prints a line for every run: the number of the command, microseconds, peak resident
// KB, wait status.

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Command {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<char*> argv;
};

struct Result {
  std::size_t command;
  long microseconds;
  long peak_kb;
  int status;
};

/// The path that a shell would find: the search is not part of the measurement.
std::string path_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  std::istringstream folders(std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + program;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return program;
}

std::vector<Command> read_commands() {
  std::vector<Command> commands;
  for (std::string line; std::getline(std::cin, line);) {
    Command command;
    for (std::size_t from = 0; from <= line.size();) {
      const auto tab = std::min(line.find('\t', from), line.size());
      command.arguments.push_back(line.substr(from, tab - from));
      from = tab + 1;
    }
    commands.push_back(std::move(command));
  }
  for (Command& command : commands) {
    for (std::string& argument : command.arguments) command.argv.push_back(argument.data());
    command.argv.push_back(nullptr);
    command.path = path_of(command.arguments.front());
  }
  return commands;
}

Result run(std::size_t number, const Command& command, const posix_spawn_file_actions_t& actions) {
  const auto begun = std::chrono::steady_clock::now();
  pid_t pid = 0;
  if (posix_spawn(&pid, command.path.c_str(), &actions, nullptr, command.argv.data(), environ) !=
      0) {
    return {number, 0, 0, -1};
  }
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  const auto took = std::chrono::steady_clock::now() - begun;
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
  return {number, us, usage.ru_maxrss, status};
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 0;
  const auto commands = read_commands();
  if (rounds <= 0 || commands.empty()) {
    std::fputs("usage: ticker ROUNDS <commands\n", stderr);
    return 2;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<Result> results;
  // Each round begins with another command, so that none always runs after the same one.
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const auto number = (i + static_cast<std::size_t>(round)) % commands.size();
      results.push_back(run(number, commands[number], actions));
    }
  }
  for (const Result& each : results) {
    std::printf("%zu %ld %ld %d\n", each.command, each.microseconds, each.peak_kb, each.status);
  }
}
