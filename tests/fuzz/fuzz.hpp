#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace dlock::fuzz {

/// What a target does with one input. Each target is a program of its own: run by libFuzzer (preset
/// `fuzz`, scripts/fuzz), or by `replay` over the seeds, as a test.
void try_input(std::string_view input);

/// A promise is broken, as `about` shows: ends the program, so that the fuzzer keeps the input.
[[noreturn]] void broken(const char* promise, std::string_view about);

inline void promise(bool kept, const char* what, std::string_view about = "") {
  if (!kept) broken(what, about);
}

/// What a terminal is shown is one line of UTF-8, and nothing in it steers the terminal.
void check_shown(std::string_view text);
inline void check_message(const Error& error) { check_shown(error.what()); }

/// Runs `body`; an Error is an answer like any other. Anything else that is thrown ends the
/// program.
template <typename Body>
void allow_errors(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    check_message(error);
  }
}

/// Takes an input apart: whatever is left over is empty.
class Pieces {
 public:
  explicit Pieces(std::string_view input) : rest_(input) {}
  /// Up to the next `end`, which is left out.
  std::string_view until(char end);
  std::string_view rest() const { return rest_; }
  /// One byte as a number; 0 at the end.
  unsigned char byte();

 private:
  std::string_view rest_;
};

}  // namespace dlock::fuzz
