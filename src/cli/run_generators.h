// A model with its weights on ranks that are threads of this process, ready to read and write text.
#pragma once

#include <functional>
#include <string_view>

#include "infer/generator.h"
#include "infer/text_model.h"

namespace orthant {

// Runs `body` on every rank. Ends with Fault::kPlan where the memory that is free does not hold
// them; `advice`: what to do then. Weights that are not what was written, and a layout that does
// not fit the model, are user errors.
void run_generators(GeneratorConfig config, const TextModel& text, std::string_view advice,
                    const std::function<void(Generator& generator, int rank)>& body);

}  // namespace orthant
