#include "support/dlock_binary.hpp"

#include <utility>

#include "support/temp_dir.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> command_line(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv{dlock_path()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

}  // namespace

ProcessOptions clean(ProcessOptions options) {
  static const TempDir home;
  options.unset_prefixes.insert(options.unset_prefixes.end(), {"DLOCK_", "XDG_"});
  options.unset.insert(options.unset.end(), {"REDISCLI_AUTH", "SSL_CERT_FILE", "SSL_CERT_DIR"});
  options.env.emplace("HOME", home.path());
  return options;
}

Process start_dlock(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return Process(command_line(arguments), clean(options));
}

Result dlock(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return start_dlock(arguments, options).wait();
}

std::string dlock_path() { return DLOCK_BINARY; }

}  // namespace dlock::test
