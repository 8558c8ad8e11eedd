// Unicode's normal forms and lower case, as Hugging Face's tokenizers have them: forms by the
// tables of Unicode 9, to which later code points are inert.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace orthant {

class NormalForm {
 public:
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd };

  explicit NormalForm(Kind kind);
  ~NormalForm();
  NormalForm(NormalForm&& other) noexcept;
  NormalForm& operator=(NormalForm&&) = delete;
  NormalForm(const NormalForm&) = delete;
  NormalForm& operator=(const NormalForm&) = delete;

  // `text` itself where it is in the form, otherwise what `buffer` then holds. `text` is valid
  // UTF-8.
  std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  struct Tables;
  Kind kind_;
  std::unique_ptr<Tables> tables_;
};

// Each code point by itself: a capital sigma at the end of a word is like any other.
void append_lower_case(std::string_view text, std::string& out);

}  // namespace orthant
