"""Images as a network sees them: resized and cropped to one size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from a2lp.images.datasets.decode import Pixels
from a2lp.images.view import View


def resized(image: Pixels, view: View) -> Pixels:
    """One image, (h, w, 3), as (size, size, 3); bilinear, with antialiasing."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    new_height, new_width = height * view.resize // shorter, width * view.resize // shorter
    top, left = round((new_height - view.crop) / 2), round((new_width - view.crop) / 2)
    if shorter == view.resize:
        cropped = image[top : top + view.crop, left : left + view.crop]
    else:
        # only the crop is computed: a strip of 1 x 1,000,000 pixels would else grow to more than memory holds
        y, x = height / new_height, width / new_width
        box = (left * x, top * y, min((left + view.crop) * x, width), min((top + view.crop) * y, height))
        bilinear = Image.Resampling.BILINEAR
        cropped = np.asarray(Image.fromarray(image).resize((view.crop, view.crop), bilinear, box=box))
    if view.output == view.crop:
        return cropped
    return np.asarray(Image.fromarray(cropped).resize((view.output, view.output), Image.Resampling.BILINEAR))
