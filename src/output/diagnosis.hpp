#pragma once

#include <string>

#include "doctor/doctor.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The server's name, a line for each check and one for the verdict: level, check, finding, and the
/// advice after `->`. On a terminal, longer lines continue below their text, and levels have
/// colours.
std::string diagnosis_text(const Diagnosis& diagnosis, const Screen& screen);

/// The same diagnosis as one JSON object on one line.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace dlock
