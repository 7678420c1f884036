"""The operators of DirectML for JAX: functions of arrays, and descriptors that mirror directml.h."""

from dmljax._errors import DmlError as DmlError
from dmljax._errors import InvalidDesc as InvalidDesc
from dmljax._errors import InvalidType as InvalidType
from dmljax._errors import Unsupported as Unsupported

# Descriptors
from dmljax._operator import OPERATORS as OPERATORS
from dmljax._operator import Operator as Operator
from dmljax._operator import broken_rules as broken_rules
from dmljax._operator import from_json as from_json
from dmljax._operator import lower as lower
from dmljax._operator import minimum_feature_level as minimum_feature_level
from dmljax._operator import to_json as to_json
from dmljax._operator import validate as validate
from dmljax._scalars import Scalar as Scalar
from dmljax._tensor import TensorDesc as TensorDesc
from dmljax._types import AxisDirection as AxisDirection
from dmljax._types import DataType as DataType
from dmljax._types import FeatureLevel as FeatureLevel
from dmljax._types import TensorFlags as TensorFlags

# Activations
from dmljax.ops.activation import ActivationHardmax1Desc as ActivationHardmax1Desc
from dmljax.ops.activation import ActivationHardmaxDesc as ActivationHardmaxDesc
from dmljax.ops.activation import activation_hardmax as activation_hardmax
from dmljax.ops.activation import activation_hardmax1 as activation_hardmax1

# Generators
from dmljax.ops.generation import DiagonalMatrix1Desc as DiagonalMatrix1Desc
from dmljax.ops.generation import DiagonalMatrixDesc as DiagonalMatrixDesc
from dmljax.ops.generation import FillValueConstantDesc as FillValueConstantDesc
from dmljax.ops.generation import diagonal_matrix as diagonal_matrix
from dmljax.ops.generation import diagonal_matrix1 as diagonal_matrix1
from dmljax.ops.generation import fill_value_constant as fill_value_constant

# Indexing
from dmljax.ops.indexing import GatherNd1Desc as GatherNd1Desc
from dmljax.ops.indexing import GatherNdDesc as GatherNdDesc
from dmljax.ops.indexing import NonzeroCoordinates as NonzeroCoordinates
from dmljax.ops.indexing import NonzeroCoordinatesDesc as NonzeroCoordinatesDesc
from dmljax.ops.indexing import OneHotDesc as OneHotDesc
from dmljax.ops.indexing import gather_nd as gather_nd
from dmljax.ops.indexing import gather_nd1 as gather_nd1
from dmljax.ops.indexing import nonzero_coordinates as nonzero_coordinates
from dmljax.ops.indexing import one_hot as one_hot

# Reductions
from dmljax.ops.reduction import ArgmaxDesc as ArgmaxDesc
from dmljax.ops.reduction import ArgminDesc as ArgminDesc
from dmljax.ops.reduction import argmax as argmax
from dmljax.ops.reduction import argmin as argmin

__version__ = "0.1.0"
