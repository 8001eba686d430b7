#pragma once

#include <cstddef>
#include <string>

#include "local/key_file.hpp"
#include "rule/lock_table.hpp"
#include "rule/table_text.hpp"

namespace dlock {

/// The waiters beyond the first few, in a part of a key's file that no hand-over touches: it is
/// read and written when one of them joins, leaves or becomes one of the first.
class WaiterTail {
 public:
  /// Takes over the line of the table's text that tells of it.
  void found(const MoreWaiters& more) { stored_ = more; }

  /// Whether waiters are left that load() has not yet brought.
  bool has_more() const { return was_read_ ? parsed_ < text_.size() : stored_.length > 0; }

  /// Appends up to `most` of them to the queue of the table. Throws Error{wrong_data}.
  void load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table);

  /// The text of a table whose waiters load() had to bring or not, with all of them; those it
  /// leaves out are written first.
  std::string write_beside(const LockKey& key, const LockTable& table, KeyFile& file);

 private:
  MoreWaiters write(const std::string& next, KeyFile& file) const;

  MoreWaiters stored_;
  std::string text_;
  bool was_read_ = false;
  std::size_t parsed_ = 0;  ///< bytes of the text
};

}  // namespace dlock
