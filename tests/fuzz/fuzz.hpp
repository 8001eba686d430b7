#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace dlock::fuzz {

/// Tries one input; each target defines it. A target is a program of its own: run by libFuzzer
/// (preset `fuzz`, scripts/fuzz), or by `replay` over the seeds, as a test.
void try_input(std::string_view input);

/// Reports a broken promise, with `about` as the evidence, and ends the program, so that the fuzzer
/// keeps the input.
[[noreturn]] void broken(const char* promise, std::string_view about);

inline void promise(bool kept, const char* what, std::string_view about = "") {
  if (!kept) broken(what, about);
}

/// Checks that text for a terminal is one line of UTF-8 and does not control the terminal.
void check_shown(std::string_view text);
inline void check_message(const Error& error) { check_shown(error.what()); }

/// Runs `body`. An Error is an answer like any other; any other exception ends the program.
template <typename Body>
void allow_errors(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    check_message(error);
  }
}

/// Takes an input apart. Pieces after its end are empty.
class Pieces {
 public:
  explicit Pieces(std::string_view input) : rest_(input) {}
  /// The text up to the next `end`, which is skipped.
  std::string_view until(char end);
  std::string_view rest() const { return rest_; }
  /// The next byte as a number; 0 at the end.
  unsigned char byte();

 private:
  std::string_view rest_;
};

}  // namespace dlock::fuzz
