#pragma once

#include <string>

#include "doctor/doctor.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The server's name, one line for each check, and one for the verdict: level, check, finding, and
/// the advice after `->`. On a terminal, levels have colours, and the rest of a line that is too
/// long is indented on the next line.
std::string diagnosis_text(const Diagnosis& diagnosis, const Screen& screen);

/// The same diagnosis as one JSON object on one line.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace dlock
