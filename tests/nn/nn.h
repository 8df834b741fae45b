// What most tests of layers include: operations and all layers.
#pragma once

#include <tandem/nn/activation.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/averaged_model.h>
#include <tandem/nn/checkpoint.h>
#include <tandem/nn/clone.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/init.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/module.h>
#include <tandem/nn/module_container.h>
#include <tandem/nn/module_dict.h>
#include <tandem/nn/module_list.h>
#include <tandem/nn/norm.h>
#include <tandem/nn/packed_sequence.h>
#include <tandem/nn/pad.h>
#include <tandem/nn/parameter_list.h>
#include <tandem/nn/parametrize.h>
#include <tandem/nn/pool.h>
#include <tandem/nn/recurrent.h>
#include <tandem/nn/resize.h>
#include <tandem/nn/sequential.h>
#include <tandem/nn/transformer.h>
#include <tandem/tests/support/ops.h>
