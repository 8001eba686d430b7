#include "support/dlock_binary.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool is_one_message(const std::string& text) {
  const bool clean = std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < ' ' && c != '\n') || c == '\x7f';
  });
  return clean && text.starts_with("dlock: ") && text.find('\n') == text.size() - 1;
}

void check_message(const Result& result, int code, const std::string& part, const char* file,
                   int line) {
  check_says(result, code, part, file, line);
  INFO(std::string(file) << ":" << line << ": " << result.out << result.err);
  CHECK(result.out == "");
  CHECK(is_one_message(result.err));
}

void check_says(const Result& result, int code, const std::string& part, const char* file,
                int line) {
  INFO(std::string(file) << ":" << line << ": " << result.err);
  CHECK(result.exit_code == code);
  CHECK(holds(result.err, part));
}

void check_ran(const Result& result, const std::string& out, const char* file, int line) {
  INFO(std::string(file) << ":" << line << ": " << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == out);
}

void check_quiet(const Result& result, int code, const char* file, int line) {
  INFO(std::string(file) << ":" << line);
  CHECK(result.exit_code == code);
  CHECK(result.err == "");
}

}  // namespace dlock::test
