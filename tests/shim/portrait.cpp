// portrait   prints everything that a process can find out about its start, except its own identity
//            and values that change by themselves; one fact a line.
#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

/// The pids of the process and its parent, its memory, and the kernel's counters.
bool is_its_own(const std::string& line) {
  for (const char* const name :
       {"Pid:", "Tgid:", "Ngid:", "PPid:", "NSpid:", "NStgid:", "NSpgid:", "NSsid:", "Vm", "Rss",
        "Hugetlb", "SigQ:", "voluntary", "nonvoluntary", "State:", "FDSize:"}) {
    if (line.starts_with(name)) return true;
  }
  return false;
}

void lines_of(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!is_its_own(line)) std::cout << path << ": " << line << '\n';
  }
}

void descriptors() {
  std::map<int, std::string> found;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
    if (entry->d_name[0] == '.' || std::stoi(entry->d_name) == dirfd(folder)) continue;
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    found[std::stoi(entry->d_name)] = std::filesystem::read_symlink(path);
  }
  for (const auto& [number, target] : found) {
    std::cout << "fd " << number << ": " << target << '\n';
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(number));
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("flags:")) std::cout << "fd " << number << " " << line << '\n';
    }
  }
}

void signals() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction found {};
    if (sigaction(number, nullptr, &found) != 0) continue;
    if (found.sa_handler == SIG_IGN) std::cout << "ignores signal " << number << '\n';
  }
}

void environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  std::sort(all.begin(), all.end());
  for (const auto& entry : all) std::cout << "env " << entry << '\n';
}

void numbers() {
  itimerval timer{};
  getitimer(ITIMER_REAL, &timer);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(0, sizeof processors, &processors);
  int death = 0;
  prctl(PR_GET_PDEATHSIG, &death);
  int reaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  std::cout << "nice " << getpriority(PRIO_PROCESS, 0) << "\npolicy " << sched_getscheduler(0)
            << "\nprocessors " << CPU_COUNT(&processors) << "\ntimer slack "
            << prctl(PR_GET_TIMERSLACK) << "\ndumpable " << prctl(PR_GET_DUMPABLE)
            << "\nkeep capabilities " << prctl(PR_GET_KEEPCAPS) << "\nsecure bits "
            << prctl(PR_GET_SECUREBITS) << "\nio priority " << syscall(SYS_ioprio_get, 1, 0)
            << "\nsubreaper " << reaper << "\ntimer set " << (timer.it_value.tv_sec != 0)
            << "\ndies with its parent of " << death << "\nin its parent's session "
            << (getsid(0) == getsid(getppid())) << "\nleads its group " << (getpgrp() == getpid())
            << '\n';
}

/// The seventh field after the name: the controlling terminal.
void terminal() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  int number = -1;
  std::sscanf(line.c_str() + line.rfind(')') + 1, " %*c %*d %*d %*d %d", &number);
  std::cout << "terminal " << number << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::cout << "argument <" << argv[i] << ">\n";
  for (const char* const file : {"status", "limits", "personality", "oom_score_adj", "cgroup",
                                 "coredump_filter", "loginuid", "sessionid", "mountinfo"}) {
    lines_of(std::string("/proc/self/") + file);
  }
  for (const char* const link : {"cwd", "root", "exe", "ns/mnt", "ns/net", "ns/pid", "ns/user"}) {
    std::cout << link << " "
              << std::filesystem::read_symlink(std::string("/proc/self/") + link).string() << '\n';
  }
  const mode_t mask = umask(0);
  std::cout << "umask " << mask << '\n';
  descriptors();
  signals();
  environment();
  numbers();
  terminal();
}
