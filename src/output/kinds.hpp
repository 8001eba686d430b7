#pragma once

#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "output/screen.hpp"

namespace dlock {

/// One line of `inspect --all-kinds`: a holder of a lock of dlock or of another library.
struct KindRow {
  std::string key;
  std::string library;
  std::string kind;
  Holder holder;
};

/// One row a lock, under a line of headings, in aligned columns; nothing at all for no rows.
std::string kinds_text(const std::vector<KindRow>& rows, const Screen& screen);

/// The same as `inspect --all-kinds --json` prints it: one object, one line.
std::string kind_json(const KindRow& row);

}  // namespace dlock
